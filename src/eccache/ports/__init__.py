"""What eccache needs from the outside, and what it offers to it: protocols only."""
