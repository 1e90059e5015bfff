"""Values as the papers print them."""
