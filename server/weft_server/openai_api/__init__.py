"""OpenAI's API: its requests become those of weft.v1, and the answers its shapes. It opens no socket."""
