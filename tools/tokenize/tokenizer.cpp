#include "tokenize/tokenizer.hpp"

#include <algorithm>

#include "base/json.hpp"
#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "prun/error.hpp"
#include "tokenize/encoder.hpp"
#include "tokenize/tokenizer_json.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

}  // namespace

Tokenizer Tokenizer::load(const fs::path& path) {
  std::error_code ignored;
  const fs::path file = fs::is_directory(path, ignored) ? path / "tokenizer.json" : path;
  const std::string failed = "cannot read " + in_quotes(file.string()) + " as a tokenizer.json";
  return {whole_file(file, JsonLimits{}.bytes, failed), file.string()};
}

Tokenizer::Tokenizer(std::string_view json, const std::string& source)
    : tables_(read_tokenizer_json(json, source)), splitter_(tables_.words) {
  for (const AddedToken& token : tables_.added) {
    added_start_[static_cast<unsigned char>(token.text[0])] = true;
    added_hold_spaces_ |= token.text.find_first_of(" \n") != std::string::npos;
  }
}

std::optional<TokenId> Tokenizer::find_added(std::string_view text) const {
  for (const AddedToken& token : tables_.added)
    if (token.text == text) return token.id;
  return {};
}

std::optional<TokenId> Tokenizer::end_of_text() const {
  const std::optional<TokenId> gpt = find_added("<|endoftext|>");
  return gpt ? gpt : find_added("<|end_of_text|>");
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  Encoder(*this).append(text, ids);
  return ids;
}

std::size_t Tokenizer::last_cut(std::string_view text, std::size_t longest) const {
  if (added_hold_spaces_ || text.empty()) return 0;
  const auto may_cut = [&](std::size_t at) {
    return splitter_.may_cut(text, at) && !added_start_[static_cast<unsigned char>(text[at + 1])];
  };
  std::size_t at = std::min(longest, text.size() - 1);
  while (at > 0 && !may_cut(at)) --at;
  return at;
}

std::string_view Tokenizer::bytes(TokenId id) const {
  if (id < 0 || id >= size() || tables_.tokens[static_cast<std::size_t>(id)].empty())
    throw_error(ErrorCode::bad_input, "the tokenizer has no token ", id, "; its ids are below ", size());
  return tables_.tokens[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) text += bytes(id);
  return text;
}

}  // namespace prun
