// A tokenizer says which tokens a text becomes and not where each stands. So the tokens' own bytes are laid
// along the text: each must be found where the one before it ends, but for a space that the tokenizer itself
// puts in front.
#include <algorithm>
#include <unordered_map>

#include "base/text.hpp"
#include "chat/chat_encoder.hpp"
#include "prun/error.hpp"
#include "tokenizer/letters.hpp"

namespace prun::chat {
namespace {

constexpr std::string_view space_mark = "\xE2\x96\x81";

class Ruler {
 public:
  Ruler(const Tokenizer& tokenizer, std::string_view text) : tokenizer_(tokenizer), text_(text) {
    for (const AddedToken& token : tokenizer.tables().added) added_.emplace(token.id, &token);
    puts_in_front_ = tokenizer.tables().normalizer.puts_in_front();
  }

  std::vector<Span> measure(std::span<const TokenId> tokens) {
    std::vector<Span> places;
    for (const TokenId token : tokens) {
      const auto added = added_.find(token);
      places.push_back(added == added_.end() ? pass(tokenizer_.bytes(token)) : pass_added(*added->second));
      at_front_ = added != added_.end();
    }
    if (at_ != text_.size()) lost();
    return places;
  }

 private:
  [[noreturn]] void lost() const {
    throw_error(ErrorCode::bad_input,
                "cannot tell which tokens are the assistant's: the tokenizer changes the text at byte ", at_,
                " of a conversation; use one that keeps letters as they are");
  }

  // Returns the bytes of the text that are a token's; `nowhere` where the token is not there. A mark of the
  // text is a space of the token's.
  std::size_t length_of(std::string_view token, std::size_t at) const {
    const std::size_t begin = at;
    for (const char byte : token) {
      if (at < text_.size() && text_[at] == byte)
        ++at;
      else if (byte == ' ' && text_.substr(at).starts_with(space_mark))
        at += space_mark.size();
      else
        return nowhere;
    }
    return at - begin;
  }

  Span pass(std::string_view token) {
    const bool has_space = token.starts_with(' ');
    std::size_t length = nowhere;
    if (at_front_ && puts_in_front_ && has_space) length = length_of(token.substr(1), at_);
    if (length == nowhere) length = length_of(token, at_);
    if (length == nowhere && has_space) length = length_of(token.substr(1), at_);
    if (length == nowhere) lost();
    const std::size_t begin = at_;
    at_ += length;
    // A piece that is only the space which the tokenizer puts in front stands at the letter behind it.
    return {begin, length == 0 ? begin + 1 : at_};
  }

  Span pass_added(const AddedToken& token) {
    const std::size_t begin = at_;
    if (token.takes_left) at_ += leading_spaces(text_.substr(at_));
    const std::size_t length = length_of(token.text, at_);
    if (length == nowhere) lost();
    at_ += length;
    if (token.takes_right) at_ += leading_spaces(text_.substr(at_));
    return {begin, at_};
  }

  static constexpr std::size_t nowhere = ~std::size_t{0};

  const Tokenizer& tokenizer_;
  std::string_view text_;
  std::unordered_map<TokenId, const AddedToken*> added_;
  std::size_t at_ = 0;
  bool at_front_ = true, puts_in_front_ = false;
};

// Where each byte of a text lies once it is in normal form: in front of a letter that it falls into. Pieces
// that nothing joins are looked at one by one.
std::vector<std::size_t> normal_places(const Normalizer& normalizer, std::string_view text) {
  std::vector<std::size_t> places;
  Normalizer::Scratch scratch;
  std::size_t done = 0;  // bytes of the normal form
  while (!text.empty()) {
    std::size_t end = decode_utf8(text).bytes;
    while (end < text.size() && !normalizer.may_cut_before(decode_utf8(text.substr(end)).value))
      end += decode_utf8(text.substr(end)).bytes;
    const std::string whole(normalizer.of(text.substr(0, end), scratch));
    for (std::size_t at = 0; at < end; at += decode_utf8(text.substr(at)).bytes) {
      const std::string_view before = normalizer.of(text.substr(0, at), scratch);
      const auto differ = std::mismatch(before.begin(), before.end(), whole.begin(), whole.end());
      places.resize(places.size() + decode_utf8(text.substr(at)).bytes,
                    done + static_cast<std::size_t>(differ.first - before.begin()));
    }
    done += whole.size();
    text.remove_prefix(end);
  }
  places.push_back(done);
  return places;
}

// Maps the other way round, outwards to whole letters.
Span before_normal(const std::vector<std::size_t>& places, const Span& span) {
  const std::size_t begins_at = *(std::upper_bound(places.begin(), places.end(), span.begin) - 1);
  const auto index_of = [&](std::size_t place) {
    return static_cast<std::size_t>(std::lower_bound(places.begin(), places.end(), place) - places.begin());
  };
  return {index_of(begins_at), index_of(span.end)};
}

}  // namespace

std::vector<Span> places_of(const Tokenizer& tokenizer, std::string_view text,
                            std::span<const TokenId> tokens) {
  const Normalizer& normalizer = tokenizer.tables().normalizer;
  Normalizer::Scratch scratch;
  const std::string_view normal = normalizer.works_by_letters() ? normalizer.of(text, scratch) : text;
  std::vector<Span> spans = Ruler(tokenizer, normal).measure(tokens);
  if (normal == text) return spans;
  const std::vector<std::size_t> places = normal_places(normalizer, text);
  for (Span& span : spans) span = before_normal(places, span);
  return spans;
}

}  // namespace prun::chat
