// Text to tokens and back, as a Hugging Face tokenizer.json says: byte-level BPE with the rules of GPT-2,
// Llama 3 and Qwen2 for words. Equal to the package `tokenizers`; what a file asks for beyond that is refused
// by its name.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/bpe.hpp"
#include "tokenizer/word_splitter.hpp"

namespace prun {

// A token that stands for a text of its own, found before words are looked for: <|endoftext|>.
struct AddedToken {
  std::string text;
  TokenId id = 0;
  bool special = false;
  bool normalized = false;  // looked for after those that are not
};

class Tokenizer {
 public:
  // A tokenizer.json, or a folder that has one. Throws bad_input, not_found or storage.
  static Tokenizer load(const std::filesystem::path& path);
  // `source` names the text in messages.
  Tokenizer(std::string_view json, const std::string& source);

  // Every id is below it: the vocabulary that a model must have at least.
  TokenId size() const { return static_cast<TokenId>(tokens_.size()); }
  std::span<const AddedToken> added() const { return added_; }
  // An added token, by its text.
  std::optional<TokenId> find_added(std::string_view text) const;
  // <|endoftext|> or <|end_of_text|>, whichever there is.
  std::optional<TokenId> end_of_text() const;
  // What the file's template puts in front of a text: Llama 3's <|begin_of_text|>.
  std::span<const TokenId> prefix() const { return prefix_; }

  // The text's tokens, without the prefix. Texts of added tokens become these, special ones too. Throws
  // bad_input for what is not UTF-8. An Encoder does the same for many texts.
  std::vector<TokenId> encode(std::string_view text) const;
  // The bytes that one token stands for; a character may take several tokens. Throws bad_input for an id that
  // is not one.
  std::string_view bytes(TokenId id) const;
  std::string decode(std::span<const TokenId> ids) const;

 private:
  friend class Encoder;
  friend class TokenizerReader;

  Tokenizer() : merges_(0) {}

  std::vector<std::string> tokens_;                     // bytes, by id; empty where there is none
  std::unordered_map<std::string, TokenId> whole_;      // words that are tokens without being merged
  std::vector<AddedToken> added_;
  std::vector<TokenId> prefix_;
  std::array<TokenId, 256> byte_tokens_{};
  MergeTable merges_;
  WordSplitter words_{WordRules::gpt2};
};

}  // namespace prun
