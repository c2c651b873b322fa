"""What passes of several families share."""
