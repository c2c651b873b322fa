"""Do two models compute the same? What is compared, held to what, and where they part."""
