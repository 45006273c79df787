"""What is asked: prompts, their wording, and what their answers are worth."""
