// Reads the section of a tokenizer.json that says how tokens become text.
#include "tokenizer/tokenizer_parts.hpp"

#include <algorithm>

namespace prun {
namespace {

// "A" of <0x41>; nothing for another text.
std::optional<char> byte_of(std::string_view token) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return {};
  const std::size_t high = digits.find(token[3]), low = digits.find(token[4]);
  if (high == digits.npos || low == digits.npos) return {};
  return static_cast<char>(high * 16 + low);
}

// Of SentencePiece: marks become spaces, <0x41> bytes, all is put together, and a space in front goes.
class SequenceReader {
 public:
  explicit SequenceReader(Decoding& out) : out_(out) {}

  void read(Fields fields) {
    const std::string& type = fields.text("type");
    const auto stage = std::find(order.begin(), order.end(), type);
    if (stage == order.end()) refuse_type(fields, type);
    if (stage - order.begin() < next_)
      fields.refuse("type", "comes in another order than Replace, ByteFallback, Fuse, Strip");
    next_ = stage - order.begin() + 1;
    if (type == "Replace") read_replace(fields);
    if (type == "ByteFallback") out_.byte_fallback = true;
    if (type == "Strip") read_strip(fields);
    fused_ = fused_ || type == "Fuse";
    fields.finish();
  }

 private:
  static constexpr std::array<std::string_view, 4> order = {"Replace", "ByteFallback", "Fuse", "Strip"};

  void read_replace(Fields& fields) {
    Fields pattern(fields.need("pattern"), fields.where() + ".pattern");
    out_.mark = pattern.text("String");
    pattern.finish();
    if (fields.text("content") != " " || out_.mark.empty())
      fields.refuse("content", "is not a space, which is all that prun puts in the place of a mark");
  }

  void read_strip(Fields& fields) {
    const JsonValue &start = fields.need("start"), &stop = fields.need("stop");
    const bool one =
        start.is_integer() && start.as_double() == 1 && stop.is_integer() && stop.as_double() == 0;
    if (fields.text("content") != " " || !one || !fused_)
      fields.refuse("content",
                    "with start and stop is not one space in front of all, which is what prun has");
    out_.rules.strip_space = true;
  }

  Decoding& out_;
  std::ptrdiff_t next_ = 0;
  bool fused_ = false;
};

void read_metaspace_decoding(Fields& fields, Decoding& out) {
  out.mark = fields.text("replacement");
  if (out.mark.empty()) fields.refuse("replacement", "is empty; the file is damaged");
  fields.ignore({"split", "str_rep"});
  const bool in_front = fields.flag("add_prefix_space", true);
  const std::string scheme = fields.take("prepend_scheme") ? fields.text("prepend_scheme") : "always";
  out.rules.strip_first = in_front && scheme != "never";
}

}  // namespace

std::string Decoding::bytes_of(const std::string& token) const {
  if (letters) {
    static const ByteLetters all;
    return all.decode(token).value_or(token);
  }
  if (byte_fallback)
    if (const std::optional<char> byte = byte_of(token)) return {*byte};
  std::string text = token;
  if (!mark.empty())
    for (std::size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + 1))
      text.replace(at, mark.size(), " ");
  return text;
}

Decoding read_decoding(const JsonValue& value, const std::string& where) {
  Decoding out;
  Fields fields(value, where);
  const std::string& type = fields.text("type");
  if (type == "ByteLevel") {
    fields.ignore({"add_prefix_space", "trim_offsets", "use_regex"});  // of the other way
    out.letters = true;
  } else if (type == "Sequence") {
    const JsonArray& list = fields.array("decoders");
    SequenceReader reader(out);
    for (std::size_t i = 0; i < list.size(); ++i)
      reader.read(Fields(list[i], where + "." + std::to_string(i)));
  } else if (type == "Metaspace") {
    read_metaspace_decoding(fields, out);
  } else if (type == "WordPiece") {
    out.rules.words = fields.text("prefix");
    out.rules.clean_up = fields.flag("cleanup", true);
  } else {
    refuse_type(fields, type);
  }
  fields.finish();
  return out;
}

}  // namespace prun
