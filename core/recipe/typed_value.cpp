// Checks one written value against its declaration.
#include "recipe/typed_value.hpp"

#include <algorithm>
#include <cmath>

#include "base/text.hpp"

namespace prun::recipe {

namespace {

class Conversion {
 public:
  Conversion(const Option& option, std::string subject, Diagnostics& diagnostics)
      : option_(option), subject_(std::move(subject)), diagnostics_(diagnostics) {}

  std::optional<Value> run(const Node& node) {
    const std::size_t before = diagnostics_.size();
    const bool lone = option_.type == OptionType::names && node.kind != Node::Kind::list;
    std::optional<Value> value = is_list(option_.type) && !lone ? list(node) : scalar(node, option_.type);
    return diagnostics_.size() == before ? std::move(value) : std::nullopt;
  }

 private:
  std::optional<Value> list(const Node& node) {
    switch (option_.type) {
      case OptionType::integers: return list_of<std::int64_t>(node);
      case OptionType::reals: return list_of<double>(node);
      default: return list_of<std::string>(node);
    }
  }

  template <class Element>
  std::optional<Value> list_of(const Node& node) {
    if (node.kind == Node::Kind::bare) return bare_list<Element>(node);
    if (node.kind != Node::Kind::list) return wrong_type(node, option_.type);
    std::vector<Element> out;
    const std::string whole = subject_;
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      subject_ = "element " + std::to_string(i + 1) + " of " + whole;
      const std::optional<Value> one = scalar(node.items[i], element_of(option_.type));
      if (one) out.push_back(std::get<Element>(*one));
    }
    return Value(std::move(out));
  }

  template <class Element>
  std::optional<Value> bare_list(const Node& node) {
    std::optional<Value> value = parse_value(option_.type, node.text);
    if (!value) return wrong_type(node, option_.type);
    if constexpr (!std::is_same_v<Element, std::string>)
      for (const Element element : std::get<std::vector<Element>>(*value))
        check_range(node, static_cast<double>(element), to_toml(Value(element)));
    return value;
  }

  std::optional<Value> scalar(const Node& node, OptionType type) {
    std::optional<Value> value =
        node.kind == Node::Kind::bare ? parse_value(type, node.text) : typed(node, type);
    if (!value) return wrong_type(node, type);
    if (const auto* whole = std::get_if<std::int64_t>(&*value))
      check_range(node, static_cast<double>(*whole), std::to_string(*whole));
    if (const auto* real = std::get_if<double>(&*value)) check_real(node, *real);
    if (const auto* text = std::get_if<std::string>(&*value)) check_text(node, *text, type);
    return value;
  }

  static std::optional<Value> typed(const Node& node, OptionType type) {
    const bool text = type == OptionType::string || type == OptionType::choice || type == OptionType::size ||
                      type == OptionType::names;
    if (type == OptionType::integer && node.kind == Node::Kind::integer) return Value(node.integer);
    if (type == OptionType::real && node.kind == Node::Kind::real) return Value(node.real);
    if (type == OptionType::real && node.kind == Node::Kind::integer)
      return Value(static_cast<double>(node.integer));
    if (type == OptionType::boolean && node.kind == Node::Kind::boolean) return Value(node.boolean);
    if (text && node.kind == Node::Kind::string) return Value(node.text);
    return std::nullopt;
  }

  void check_real(const Node& node, double real) {
    if (!std::isfinite(real))
      report(node, subject_ + " is not a finite number");
    else
      check_range(node, real, to_toml(Value(real)));
  }

  void check_range(const Node& node, double number, const std::string& shown) {
    if (!option_.in_range(number))
      report(node, subject_ + " is " + shown + ", outside its range " + option_.range);
  }

  void check_text(const Node& node, const std::string& text, OptionType type) {
    if (type == OptionType::size && !text.empty() && !parse_size(text))
      report(node, subject_ + " is " + in_quotes(text) + ", not a size such as \"80GiB\"");
    if (type != OptionType::choice) return;
    const auto& choices = option_.choices;
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return;
    const std::string near = nearest(text, choices);
    report(node, subject_ + " is " + in_quotes(text) + ", not one of " + join(choices, ", ") +
                     (near.empty() ? "" : "; did you mean '" + near + "'?"));
  }

  std::optional<Value> wrong_type(const Node& node, OptionType type) {
    report(node, "wrong type for " + subject_ + ": expected " + std::string(describe(type)) + ", got " +
                     describe(node) + meant_by(node, type));
    return std::nullopt;
  }

  // Returns what was probably meant: the same without quotes, with them, or as a whole number.
  static std::string meant_by(const Node& node, OptionType type) {
    const bool text = type == OptionType::string || type == OptionType::choice || type == OptionType::size;
    if (node.kind == Node::Kind::string && !text && parse_value(type, node.text))
      return "; leave out the quotes: " + printable(trim(node.text), 60);
    if (node.kind == Node::Kind::integer && text)
      return "; put it in quotes: " + to_toml(Value(std::to_string(node.integer)));
    const bool whole = node.kind == Node::Kind::real && type == OptionType::integer &&
                       std::abs(node.real) < 1e15 && std::trunc(node.real) == node.real;
    return whole ? "; write it out: " + std::to_string(static_cast<std::int64_t>(node.real)) : "";
  }

  void report(const Node& node, std::string message) { diagnostics_.add(node.at, std::move(message)); }

  const Option& option_;
  std::string subject_;
  Diagnostics& diagnostics_;
};

}  // namespace

std::optional<Value> convert(const Node& node, const Option& option, std::string_view subject,
                             Diagnostics& diagnostics) {
  return Conversion(option, std::string(subject), diagnostics).run(node);
}

}  // namespace prun::recipe
