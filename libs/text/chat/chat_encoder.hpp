// Conversations to tokens, and which of these a model learns to write.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "chat/conversation.hpp"
#include "chat/template.hpp"
#include "tokenizer/tokenizer.hpp"

namespace prun::chat {

enum class Learned : std::uint8_t { answers, last_answer, all };
// Returns what "answers", "last" and "all" mean, and nothing for other names.
std::optional<Learned> learned_named(std::string_view name);

// Holds a tokenizer and the template of its conversations. It is immutable, for any number of threads.
class ChatFormat {
 public:
  // `folder` has a tokenizer.json, or is that file. `name` is that of a built-in template, a file of one, or
  // "own": the one in chat_template.jinja or tokenizer_config.json beside the tokenizer. `today` is the day
  // for templates that ask, as 2026-07-31, or empty. Throws bad_input or not_found.
  ChatFormat(const std::filesystem::path& folder, const std::string& name, const std::string& today = {});

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const Template& chat_template() const { return template_; }
  const std::optional<Day>& today() const { return today_; }
  // Returns bos_token and so on, by the texts of tokens.
  const Dict& variables() const { return variables_; }
  // Returns the token that ends a completion without a template; negative where the tokenizer names none.
  TokenId end() const { return end_; }

 private:
  Tokenizer tokenizer_;
  Dict variables_;
  Template template_;
  std::optional<Day> today_;
  TokenId end_ = -1;
};

// Says whose words a token belongs to; `other` where that is not known.
enum class Speaker : std::uint8_t { system, user, assistant, tool, other };

struct EncodedChat {
  std::vector<TokenId> tokens;
  std::vector<bool> learned;   // by token
  std::vector<Speaker> roles;  // likewise, of what is learned
};

// One thread uses it at a time.
class ChatEncoder {
 public:
  // Borrows the format. `reasoning` says whether an answer's reasoning is learned with it.
  explicit ChatEncoder(const ChatFormat& format, Learned learned = Learned::answers, bool reasoning = true);

  // Throws bad_input, without the place of the conversation.
  EncodedChat encode(const Conversation& conversation);
  // Returns the text of a conversation, or of what the model is given to write the next answer.
  std::string text_of(const Conversation& conversation, bool prompt) const;
  // Encodes what the model is given to write the next answer.
  std::vector<TokenId> encode_prompt(const Conversation& conversation);

 private:
  Rendered render(const Conversation& conversation, std::size_t messages, bool prompt) const;
  Rendered before_answer(const Conversation& conversation, std::size_t message) const;
  std::vector<Span> answers_of(const Conversation& conversation, const Rendered& all) const;
  std::vector<Span> learned_of(const Conversation& conversation, const Rendered& all) const;
  std::vector<Span> without_reasoning(std::vector<Span> spans, const Conversation& conversation,
                                      const std::string& text) const;
  Span reasoning_of(const Conversation& conversation, std::size_t message, const std::string& text) const;
  std::vector<std::pair<std::size_t, Speaker>> roles_of(const Conversation& conversation,
                                                        const std::string& text) const;
  std::vector<Speaker> roles_of_tokens(const Conversation& conversation, const std::string& text,
                                       std::span<const TokenId> tokens) const;
  EncodedChat encode_text(const Conversation& conversation);

  const ChatFormat& format_;
  Learned learned_;
  bool reasoning_;
  Encoder encoder_;
};

// Where each token stands in the text that it was made of. Throws bad_input where the tokenizer does not keep
// letters as they are, so that nobody can tell.
std::vector<Span> places_of(const Tokenizer& tokenizer, std::string_view text,
                            std::span<const TokenId> tokens);

}  // namespace prun::chat
