// Reads the sections of a tokenizer.json that say how a text is normalized and cut.
#include <algorithm>

#include "tokenizer/tokenizer_parts.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- steps json

std::string part_of(const std::string& where, std::size_t i) { return where + "." + std::to_string(i); }

// Reads {"String": "x"} or {"Regex": "x"}.
struct Pattern {
  std::string text;
  bool expression = false;
};
Pattern read_pattern(Fields& fields) {
  Fields pattern(fields.need("pattern"), fields.where() + ".pattern");
  const bool literal = pattern.take("String") != nullptr;
  Pattern read{literal ? pattern.text("String") : pattern.text("Regex"), !literal};
  pattern.finish();
  if (read.text.empty()) pattern.refuse("String", "is empty; the file is damaged");
  return read;
}

// --- normalizers

ReplaceText read_replace(Fields& fields) {
  const Pattern pattern = read_pattern(fields);
  const std::string& to = fields.text("content");
  if (!pattern.expression) return {pattern.text, to, false};
  if (pattern.text != " {2,}")
    throw_error(ErrorCode::bad_input, fields.where(), ".pattern: 'Regex' ", in_quotes(pattern.text),
                " is none that prun knows of a Replace; it has ' {2,}' and any String");
  return {" ", to, true};
}

BertClean read_bert(Fields& fields) {
  BertClean step;
  step.clean = fields.flag("clean_text", true);
  step.chinese = fields.flag("handle_chinese_chars", true);
  step.lower = fields.flag("lowercase", true);
  step.accents = fields.flag("strip_accents", step.lower);
  return step;
}

const NormalKind* normal_kind(const std::string& type) {
  static const std::unordered_map<std::string, NormalKind> kinds = {
      {"NFC", NormalKind::c}, {"NFD", NormalKind::d}, {"NFKC", NormalKind::kc}, {"NFKD", NormalKind::kd}};
  const auto found = kinds.find(type);
  return found == kinds.end() ? nullptr : &found->second;
}

void read_single_normalizer(Fields& fields, const std::string& type, Normalizer& out) {
  if (const NormalKind* const kind = normal_kind(type))
    out.add(std::make_shared<const NormalForm>(*kind));
  else if (type == "Prepend")
    out.add(PrependText{fields.text("prepend")});
  else if (type == "Replace")
    out.add(read_replace(fields));
  else if (type == "Strip")
    out.add(StripSpaces{fields.flag("strip_left", true), fields.flag("strip_right", true)});
  else if (type == "Lowercase")
    out.add(LowerCase{});
  else if (type == "StripAccents")
    out.add(StripAccents{});
  else if (type == "BertNormalizer")
    out.add(read_bert(fields));
  else if (type == "Precompiled")
    out.add(std::make_shared<const Charsmap>(fields.text("precompiled_charsmap"),
                                             fields.name_of("precompiled_charsmap")));
  else
    throw_error(
        ErrorCode::bad_input, fields.name_of("type"), " is ", in_quotes(type),
        ", which prun does not have; it has NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, Lowercase, "
        "StripAccents, BertNormalizer and Precompiled");
}

// --- pre-tokenizers

CutAt::Keep read_keep(Fields& fields) {
  static const std::unordered_map<std::string, CutAt::Keep> keeps = {
      {"Removed", CutAt::Keep::removed},
      {"Isolated", CutAt::Keep::isolated},
      {"MergedWithPrevious", CutAt::Keep::with_previous},
      {"MergedWithNext", CutAt::Keep::with_next},
      {"Contiguous", CutAt::Keep::contiguous}};
  const auto keep = keeps.find(fields.text("behavior"));
  if (keep == keeps.end())
    fields.refuse(
        "behavior",
        "is none of Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous, which are all "
        "that prun has");
  return keep->second;
}

// An expression that matches every text cuts it the same in two ways, and has rules of its own.
void read_split(Fields& split, Cutting& out) {
  CutAt step{.keep = read_keep(split), .inverted = split.flag("invert", false)};
  const Pattern pattern = read_pattern(split);
  if (!pattern.expression) {
    step.text = pattern.text;
    out.steps.emplace_back(std::move(step));
    return;
  }
  const bool isolates = step.keep == (step.inverted ? CutAt::Keep::removed : CutAt::Keep::isolated);
  if (const std::optional<WordRules> rules = word_rules_of(pattern.text); rules && isolates) {
    out.steps.emplace_back(CutWords{*rules});
    return;
  }
  step.pattern = std::make_shared<const WordPattern>(pattern.text, split.where() + ".pattern");
  out.steps.emplace_back(std::move(step));
}

MarkSpaces read_metaspace(Fields& fields) {
  static const std::unordered_map<std::string, MarkSpaces::Front> fronts = {
      {"never", MarkSpaces::Front::never},
      {"first", MarkSpaces::Front::first},
      {"always", MarkSpaces::Front::always}};
  MarkSpaces step;
  step.mark = fields.text("replacement");
  fields.ignore({"str_rep"});
  if (step.mark.empty()) fields.refuse("replacement", "is empty; the file is damaged");
  const bool in_front = fields.flag("add_prefix_space", true);
  const std::string scheme = fields.take("prepend_scheme") ? fields.text("prepend_scheme")
                             : in_front                    ? "always"
                                                           : "never";
  const auto front = fronts.find(scheme);
  if (front == fronts.end())
    fields.refuse("prepend_scheme", "is neither always, first nor never, which are all that prun has");
  if (!in_front && scheme != "never")
    fields.refuse("add_prefix_space", "is false, and prepend_scheme is not never; the file is damaged");
  step.front = front->second;
  step.cut = fields.flag("split", true);
  return step;
}

void read_byte_level(Fields& fields, Cutting& out) {
  if (fields.flag("add_prefix_space", true)) out.steps.emplace_back(PutSpace{});
  fields.ignore({"trim_offsets"});
  if (fields.flag("use_regex", true)) out.steps.emplace_back(CutWords{WordRules::gpt2});
  out.bytes = true;
}

void read_single_cutting(Fields& fields, const std::string& type, Cutting& out) {
  if (type == "ByteLevel")
    read_byte_level(fields, out);
  else if (type == "Split")
    read_split(fields, out);
  else if (type == "Digits")
    out.steps.emplace_back(CutDigits{fields.flag("individual_digits", false)});
  else if (type == "WhitespaceSplit")
    out.steps.emplace_back(CutSpaces{});
  else if (type == "Whitespace")
    out.steps.emplace_back(CutWordRuns{});
  else if (type == "Punctuation")
    out.steps.emplace_back(
        CutAt{.keep = fields.take("behavior") ? read_keep(fields) : CutAt::Keep::isolated});
  else if (type == "CharDelimiterSplit")
    out.steps.emplace_back(CutAt{.text = fields.text("delimiter"), .keep = CutAt::Keep::removed});
  else if (type == "BertPreTokenizer")
    out.steps.emplace_back(CutBert{});
  else if (type == "Metaspace")
    out.steps.emplace_back(read_metaspace(fields));
  else
    throw_error(ErrorCode::bad_input, fields.name_of("type"), " is ", in_quotes(type),
                ", which prun does not have; it has ByteLevel, Split, Digits, Whitespace, WhitespaceSplit, "
                "Punctuation, CharDelimiterSplit, BertPreTokenizer and Metaspace");
}

}  // namespace

void read_normalizer(const JsonValue& value, const std::string& where, Normalizer& out) {
  Fields fields(value, where);
  const std::string& type = fields.text("type");
  if (type == "Sequence") {
    const JsonArray& list = fields.array("normalizers");
    for (std::size_t i = 0; i < list.size(); ++i) read_normalizer(list[i], part_of(where, i), out);
  } else {
    read_single_normalizer(fields, type, out);
  }
  fields.finish();
}

void read_cutting(const JsonValue& value, const std::string& where, Cutting& out) {
  Fields fields(value, where);
  const std::string& type = fields.text("type");
  if (out.bytes) fields.refuse("type", "comes behind ByteLevel, which prun has as the last one only");
  if (type == "Sequence") {
    const JsonArray& list = fields.array("pretokenizers");
    for (std::size_t i = 0; i < list.size(); ++i) read_cutting(list[i], part_of(where, i), out);
  } else {
    read_single_cutting(fields, type, out);
  }
  fields.finish();
}

namespace {

// ------------------------------------------------------------------- decoding json
// Reads the section of a tokenizer.json that says how tokens become text.

// "A" of <0x41>; nothing for another text.
std::optional<char> byte_of(std::string_view token) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return {};
  const std::size_t high = digits.find(token[3]), low = digits.find(token[4]);
  if (high == digits.npos || low == digits.npos) return {};
  return static_cast<char>(high * 16 + low);
}

// Reads the steps of SentencePiece: marks become spaces, <0x41> bytes, all is put together, and a space in
// front goes.
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
