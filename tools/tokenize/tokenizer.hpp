// Text to tokens and back, as a Hugging Face tokenizer.json says: byte-level BPE that finds words as GPT-2,
// Llama 3 and Qwen2 do. Equal to the package `tokenizers`.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenize/bpe.hpp"
#include "tokenize/normal_form.hpp"
#include "tokenize/word_splitter.hpp"

namespace prun {

// A token that stands for a text of its own, such as <|endoftext|>; looked for before words are.
struct AddedToken {
  std::string text;
  TokenId id = 0;
  bool special = false;
  bool normalized = false;  // looked for in what those that are not have left
};

// What a tokenizer.json comes to.
struct TokenizerTables {
  std::vector<std::string> tokens;                 // the bytes of each id; empty where there is no such token
  std::unordered_map<std::string, TokenId> whole;  // words that are tokens without being merged
  std::array<TokenId, 256> bytes{};                // the token of each byte
  MergeTable merges{0};
  WordRules words = WordRules::gpt2;
  std::vector<AddedToken> added;
  std::vector<TokenId> prefix;
  std::optional<NormalForm> normal_form;  // that texts are brought into first, but for added tokens
};

// Immutable, for any number of threads.
class Tokenizer {
 public:
  // A tokenizer.json, or a folder that has one. Throws bad_input, not_found or storage; what the file asks
  // for and prun does not have is refused by its name.
  static Tokenizer load(const std::filesystem::path& path);
  // `source` names the text in messages.
  Tokenizer(std::string_view json, const std::string& source);

  // All ids are below it: the vocabulary that a model must have at least.
  TokenId size() const { return static_cast<TokenId>(tables_.tokens.size()); }
  // An added token by its text.
  std::optional<TokenId> find_added(std::string_view text) const;
  // <|endoftext|> or <|end_of_text|>, whichever there is.
  std::optional<TokenId> end_of_text() const;
  // What the file's template puts in front of a text, such as Llama 3's <|begin_of_text|>. encode() does not.
  std::span<const TokenId> prefix() const { return tables_.prefix; }

  // The texts of added tokens become these, of special ones too. Throws bad_input for what is not UTF-8.
  std::vector<TokenId> encode(std::string_view text) const;
  // Where a text may be cut, at most `longest` bytes from its start and as far from it as there is a place:
  // the tokens of both pieces are those of the whole. 0 where there is none.
  std::size_t last_cut(std::string_view text, std::size_t longest) const;
  // What one token stands for: a character may take several. Throws bad_input for an id that is not one.
  std::string_view bytes(TokenId id) const;
  std::string decode(std::span<const TokenId> ids) const;

  const TokenizerTables& tables() const { return tables_; }

 private:
  TokenizerTables tables_;
  WordSplitter splitter_;
  // Of added tokens: their first bytes, before which words end; and whether a cut could lie within one.
  std::array<bool, 256> added_start_{};
  bool added_hold_spaces_ = false;
};

}  // namespace prun
