"""What operators are: their schemas and signatures, and what is known of each."""
