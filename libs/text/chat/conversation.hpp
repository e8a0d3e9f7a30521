// Conversations as files of JSON lines have them: messages of role and content, ShareGPT's conversations,
// instructions with outputs, and prompts with completions.
#pragma once

#include <string>
#include <vector>

#include "chat/value.hpp"

namespace prun::chat {

struct Message {
  Value value;             // as templates see it
  bool is_answer = false;  // the assistant's
  bool is_learned =
      false;  // as far as the file says: the assistant's, unless it has weight 0 or is of a prompt
};

struct Conversation {
  std::vector<Message> messages;
  // Holds further names that templates can read: tools, documents, and those of chat_template_kwargs.
  Dict variables;
  // Without messages there are these texts, which no template renders.
  std::string prompt, completion;

  bool is_text() const { return messages.empty(); }
};

// Puts this text in place of a message's reasoning, under each of its names. Says whether it has any.
bool replace_reasoning(Message& message, const std::string& by);

// `place` names the line in messages. Throws bad_input for what is none of these forms; nothing is guessed.
Conversation read_conversation(const JsonValue& line, const std::string& place);

}  // namespace prun::chat
