"""What a person looks at: pages, the generated manuals, SARIF."""
