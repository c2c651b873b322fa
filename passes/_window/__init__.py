"""Attentions whose constant mask cuts the sequence into windows."""
