#include "tokenizer/word_pattern.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

using Node = WordPattern::Node;
using Sequence = std::vector<std::int32_t>;

constexpr std::size_t unbounded = std::numeric_limits<std::size_t>::max();

constexpr std::uint16_t bit_of(Category category) {
  return static_cast<std::uint16_t>(1u << static_cast<unsigned>(category));
}
constexpr std::uint16_t all_categories = bit_of(Category::count) - 1;

// Bits of what stands in \p{...}; none for what prun does not have.
std::uint16_t categories_named(std::string_view name) {
  using enum Category;
  constexpr std::uint16_t letters =
      bit_of(capital) | bit_of(small) | bit_of(title) | bit_of(modifier) | bit_of(letter);
  const std::pair<std::string_view, std::uint16_t> known[] = {
      {"L", letters},           {"Lu", bit_of(capital)},
      {"Ll", bit_of(small)},    {"Lt", bit_of(title)},
      {"Lm", bit_of(modifier)}, {"Lo", bit_of(letter)},
      {"M", bit_of(mark)},      {"N", static_cast<std::uint16_t>(bit_of(digit) | bit_of(number))},
      {"Nd", bit_of(digit)},    {"P", bit_of(punctuation)},
      {"S", bit_of(symbol)}};
  for (const auto& [one, bits] : known)
    if (one == name) return bits;
  return 0;
}

class PatternParser {
 public:
  PatternParser(std::string_view text, const std::string& where, std::vector<Node>& nodes)
      : text_(text), where_(where), nodes_(nodes) {}

  // Returns where the expression begins.
  std::int32_t parse() {
    const std::int32_t choice = read_choice(0);
    if (at_ != text_.size()) refuse("has an end of a group without its beginning");
    const std::size_t least = link({choice}, -1);
    if (least == 0) refuse("matches a text without letters, which prun does not have");
    return choice;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw_error(ErrorCode::bad_input, where_, ": 'Regex' ", in_quotes(text_), " ", what);
  }
  [[noreturn]] void not_there(std::string_view part) const {
    refuse("has " + in_quotes(part) + ", which prun does not have in expressions");
  }
  bool is_at(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool pass(std::string_view what) { return is_at(what) && (at_ += what.size(), true); }
  bool at_end() const { return at_ == text_.size(); }

  std::int32_t add(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<std::int32_t>(nodes_.size()) - 1;
  }

  // Reads alternatives up to what ends them. Each is a sequence until all are linked.
  std::int32_t read_choice(int depth) {
    constexpr int deepest = 20;
    if (depth > deepest) refuse("is nested too deeply");
    const std::int32_t choice = add({.kind = Node::Kind::choice});
    std::vector<Sequence> sequences(1);
    while (!at_end() && !is_at(")"))
      if (pass("|"))
        sequences.emplace_back();
      else
        sequences.back().push_back(read_item(depth));
    if (sequences_.size() < nodes_.size()) sequences_.resize(nodes_.size());
    sequences_[static_cast<std::size_t>(choice)] = std::move(sequences);
    return choice;
  }

  std::int32_t read_item(int depth) {
    if (is_at("(")) return read_group(depth);
    Node node;
    node.set = read_set();
    read_times(node);
    for (std::size_t i = 0; i < node.ascii.size(); ++i)
      node.ascii[i] = node.set.has(static_cast<char32_t>(i), category_of(static_cast<char32_t>(i)));
    return add(std::move(node));
  }

  std::int32_t read_group(int depth) {
    const bool outer = any_case_;
    bool ahead = false, negated = false;
    if (pass("(?i:"))
      any_case_ = true;
    else if (pass("(?!"))
      ahead = negated = true;
    else if (pass("(?="))
      ahead = true;
    else if (!pass("(?:") && (is_at("(?") || !pass("(")))
      not_there(text_.substr(at_, 4));
    const std::int32_t choice = read_choice(depth + 1);
    if (!pass(")")) refuse("has a group that does not end");
    any_case_ = outer;
    if (ahead) return add({.kind = Node::Kind::ahead, .negated = negated, .branches = {choice}});
    const bool optional = pass("?");
    if (is_at("*") || is_at("+") || is_at("?") || is_at("{"))
      not_there(")" + std::string(text_.substr(at_, 1)));
    if (optional) sequences_[static_cast<std::size_t>(choice)].emplace_back();
    return choice;
  }

  // --- characters

  CharacterSet read_set() {
    if (pass("[")) return read_class();
    CharacterSet set;
    if (pass(".")) {
      set.negated = true;
      set.ranges = {{'\n', '\n'}};
    } else if (std::string_view("^$*+?{").find(text_[at_]) != std::string_view::npos) {
      not_there(text_.substr(at_, 1));
    } else {
      add_one(set);
    }
    return set;
  }

  CharacterSet read_class() {
    CharacterSet set;
    set.negated = pass("^");
    for (bool first = true; first || !is_at("]"); first = false) {
      if (at_end()) refuse("has a set that does not end");
      if (is_at("[") || is_at("&&")) not_there(text_.substr(at_, 2));
      const std::optional<char32_t> from = add_one(set);
      if (!from || !is_at("-") || text_.substr(at_).starts_with("-]")) continue;
      ++at_;
      const std::optional<char32_t> last = add_one(set);
      if (!last || *last < *from) refuse("has a range that is none");
      if (any_case_) not_there("a range in any case");
      set.ranges.emplace_back(*from, *last);
    }
    ++at_;
    return set;
  }

  // Adds a character, which it returns, or those that an escape stands for.
  std::optional<char32_t> add_one(CharacterSet& set) {
    if (at_end()) refuse("ends too early");
    char32_t value = 0;
    if (pass("\\")) {
      if (add_escaped(set)) return {};
      value = escaped_character();
    } else {
      const CodePoint point = decode_utf8(text_.substr(at_));
      value = point.value;
      at_ += point.bytes;
    }
    set.ranges.emplace_back(value, value);
    if (any_case_) add_cases(set, value);
    return value;
  }

  // The long s is an s where case does not count, and the Kelvin sign a k.
  static void add_cases(CharacterSet& set, char32_t value) {
    const char32_t lower = value >= 'A' && value <= 'Z' ? value - 'A' + 'a' : value;
    if (lower < 'a' || lower > 'z') return;
    const char32_t upper = lower - 'a' + 'A';
    for (const char32_t one : {lower, upper}) set.ranges.emplace_back(one, one);
    if (lower == 's') set.ranges.emplace_back(0x17F, 0x17F);
    if (lower == 'k') set.ranges.emplace_back(0x212A, 0x212A);
  }

  bool add_escaped(CharacterSet& set) {
    std::uint16_t bits = 0;
    bool negated = false;
    if (is_at("s") || is_at("S")) {
      bits = bit_of(Category::space);
      negated = is_at("S");
      ++at_;
    } else if (is_at("d") || is_at("D")) {
      bits = bit_of(Category::digit);
      negated = is_at("D");
      ++at_;
    } else if (is_at("p{") || is_at("P{")) {
      negated = is_at("P{");
      const std::size_t end = text_.find('}', at_);
      if (end == text_.npos) refuse("has a property that does not end");
      bits = categories_named(text_.substr(at_ + 2, end - at_ - 2));
      if (bits == 0) not_there(text_.substr(at_ - 1, end + 2 - at_));
      at_ = end + 1;
    }
    set.categories |= negated ? static_cast<std::uint16_t>(all_categories & ~bits) : bits;
    return bits != 0;
  }

  char32_t escaped_character() {
    if (at_end()) refuse("ends too early");
    constexpr std::string_view names = "rntfv", meant = "\r\n\t\f\v";
    if (const std::size_t found = names.find(text_[at_]); found != names.npos) {
      ++at_;
      return static_cast<unsigned char>(meant[found]);
    }
    const char letter = text_[at_];
    const std::size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 0;
    if (digits > 0) {
      std::uint32_t value = 0;
      const std::string_view code = text_.substr(at_ + 1, digits);
      if (std::from_chars(code.data(), code.data() + code.size(), value, 16).ptr != code.data() + digits)
        refuse("has a code that is none");
      at_ += 1 + digits;
      return value;
    }
    const auto byte = static_cast<unsigned char>(letter);
    if (byte >= 0x80 || (letter >= '0' && letter <= '9') || ((letter | 32) >= 'a' && (letter | 32) <= 'z'))
      not_there("\\" + std::string(1, letter));
    ++at_;
    return byte;
  }

  Category category_of(char32_t value) const { return CharacterKinds::shared().category_of(value); }

  // --- how many

  void read_times(Node& node) {
    const bool counted = is_at("{");
    if (pass("?")) {
      node.least = 0;
    } else if (pass("*")) {
      node.least = 0;
      node.most = unbounded;
    } else if (pass("+")) {
      node.most = unbounded;
    } else if (pass("{")) {
      node.least = read_count();
      node.most = pass(",") ? (is_at("}") ? unbounded : read_count()) : node.least;
      if (!pass("}") || node.most < node.least) refuse("has a count that is none");
    } else {
      return;
    }
    node.lazy = !counted && pass("?");
    node.keeps = !counted && !node.lazy && pass("+");
    if (is_at("?") || is_at("*") || is_at("+") || is_at("{")) not_there(text_.substr(at_ - 1, 2));
  }

  std::size_t read_count() {
    constexpr std::size_t largest = 1000;
    std::size_t count = 0;
    const std::string_view rest = text_.substr(at_);
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), count);
    if (error != std::errc() || count > largest) refuse("has a count that is none");
    at_ += static_cast<std::size_t>(end - rest.data());
    return count;
  }

  // Tells each part of a sequence what comes next. Returns how few characters it matches.
  std::size_t link(const Sequence& sequence, std::int32_t next) {
    std::size_t least = 0;
    for (auto one = sequence.rbegin(); one != sequence.rend(); ++one) {
      least += link_node(*one, next);
      next = *one;
    }
    return least;
  }

  std::size_t link_node(std::int32_t index, std::int32_t next) {
    const auto at = static_cast<std::size_t>(index);
    nodes_[at].next = next;
    if (nodes_[at].kind == Node::Kind::characters) return nodes_[at].least;
    if (nodes_[at].kind == Node::Kind::ahead) {
      link_node(nodes_[at].branches[0], -1);
      return 0;  // it looks at characters and takes none
    }
    std::size_t least = unbounded;
    for (const Sequence& sequence : sequences_[at]) {
      least = std::min(least, link(sequence, next));
      nodes_[at].branches.push_back(sequence.empty() ? next : sequence.front());
    }
    return least;
  }

  std::string_view text_;
  const std::string& where_;
  std::vector<Node>& nodes_;
  std::vector<std::vector<Sequence>> sequences_;  // of choices, by node
  std::size_t at_ = 0;
  bool any_case_ = false;
};

// Of Llama 4 and others; of Mistral; of Qwen 3.5.
constexpr std::string_view known[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

}  // namespace

bool CharacterSet::has(char32_t value, Category category) const {
  const bool in = (categories & bit_of(category)) != 0 ||
                  std::any_of(ranges.begin(), ranges.end(), [&](const auto& range) {
                    return range.first <= value && value <= range.second;
                  });
  return in != negated;
}

WordPattern::WordPattern(std::string_view expression, const std::string& where) {
  first_ = PatternParser(expression, where, nodes_).parse();
  begins_at_spaces_ = std::find(std::begin(known), std::end(known), expression) != std::end(known);
}

// Tries what stands in a node and then what comes next, and takes back what did not lead to an end.
class WordPattern::Matcher {
 public:
  Matcher(const std::vector<Node>& nodes, std::string_view text) : nodes_(nodes), text_(text) {}

  bool match(std::int32_t index, std::size_t at) {
    for (;;) {
      count();
      if (index < 0) return (end_ = at), true;
      const Node& node = nodes_[static_cast<std::size_t>(index)];
      if (node.kind == Node::Kind::characters && node.most == 1 && node.least == 1) {
        if (!passes(node, at)) return false;
      } else if (node.kind == Node::Kind::characters) {
        return match_run(node, at);
      } else if (node.kind == Node::Kind::ahead) {
        if (match(node.branches[0], at) == node.negated) return false;
      } else {
        return std::any_of(node.branches.begin(), node.branches.end(),
                           [&](std::int32_t branch) { return match(branch, at); });
      }
      index = node.next;
    }
  }
  std::size_t end() const { return end_; }

 private:
  void count() {
    constexpr std::size_t most_steps = 100'000'000;
    if (++steps_ > most_steps)
      throw_error(ErrorCode::bad_input, "the tokenizer's expression takes too many steps for a text");
  }

  // Passes one character of a node, if it is there.
  bool passes(const Node& node, std::size_t& at) const {
    if (at == text_.size()) return false;
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) return node.ascii[byte] && (++at, true);
    const CodePoint point = decode_utf8(text_.substr(at));
    if (!node.set.has(point.value, CharacterKinds::shared().category_of(point.value))) return false;
    at += point.bytes;
    return true;
  }

  bool match_run(const Node& node, std::size_t at) {
    std::size_t taken = 0;
    while (taken < (node.lazy ? node.least : node.most) && passes(node, at)) {
      count();
      ++taken;
    }
    if (taken < node.least) return false;
    if (node.keeps || node.most == node.least) return match(node.next, at);
    while (node.lazy) {
      if (match(node.next, at)) return true;
      if (taken++ == node.most || !passes(node, at)) return false;
    }
    for (;; --taken) {
      if (match(node.next, at)) return true;
      if (taken == node.least) return false;
      do --at;
      while ((static_cast<unsigned char>(text_[at]) & 0xC0) == 0x80);
    }
  }

  const std::vector<Node>& nodes_;
  std::string_view text_;
  std::size_t end_ = 0, steps_ = 0;
};

std::optional<std::size_t> WordPattern::match(std::string_view text, std::size_t at) const {
  Matcher matcher(nodes_, text);
  if (!matcher.match(first_, at)) return {};
  return matcher.end() - at;
}

}  // namespace prun
