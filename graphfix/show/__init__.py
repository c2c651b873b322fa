"""What a person looks at: pages, figures, the strip of kernels, SARIF."""
