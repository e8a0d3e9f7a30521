// Shows conversations as a model reads them.
#pragma once

#include <filesystem>
#include <string>

namespace prun {

struct RenderWish {
  std::filesystem::path chats, tokenizer;
  std::string chat_template = "own", date, learn = "answers";
  bool prompt = false;  // up to where the next answer begins
};

// Prints a line of JSON for each conversation: its text and tokens, and of these which are learned; or why it
// is refused. Returns how many are.
std::int64_t print_rendered(const RenderWish& wish);

}  // namespace prun
