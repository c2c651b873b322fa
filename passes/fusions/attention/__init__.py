"""Attention written in pieces: products, scores, masks, rotary embeddings, layout."""
