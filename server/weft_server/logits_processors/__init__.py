"""What changes the scores of tokens before one is chosen: penalties, biases, bans, grammars."""
