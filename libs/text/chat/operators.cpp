// What operators between values compute, as Python does.
#include <cmath>

#include "chat/helpers.hpp"

namespace prun::chat {
namespace {

// Says whether what comes of two numbers is a number still.
bool are_small(std::int64_t a, std::int64_t b, std::int64_t limit) {
  return a < limit && a > -limit && b < limit && b > -limit;
}

Value sum_of(const Value& left, const Value& right) {
  if (left.as<std::string>() && right.as<std::string>())
    return {*left.as<std::string>() + *right.as<std::string>()};
  if (!left.list() || !right.list() || left.is_tuple() != right.is_tuple())
    trouble(std::string("+ is asked of ") + left.kind() + " and " + right.kind());
  List all = *left.list();
  all.insert(all.end(), right.list()->begin(), right.list()->end());
  return Value::of(std::move(all), left.is_tuple());
}

// A text so many times.
Value repeated(const std::string& text, std::int64_t times) {
  std::string made;
  if (times > 0 && text.size() > most_bytes / static_cast<std::size_t>(times))
    trouble("the text becomes too long");
  for (std::int64_t i = 0; i < times && !text.empty(); ++i) made += text;
  return {std::move(made)};
}

// Rounds as Python does: towards minus infinity.
std::int64_t floor_of(std::int64_t a, std::int64_t b) {
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
}

Value whole_result(const std::string& sign, std::int64_t a, std::int64_t b) {
  const bool is_sum = sign == "+" || sign == "-";
  if (!are_small(a, b, std::int64_t{1} << (is_sum ? 62 : 31))) trouble("numbers are too large for " + sign);
  if (is_sum) return {sign == "+" ? a + b : a - b};
  if (sign == "*") return {a * b};
  if (b == 0) trouble("something is divided by zero");
  return {sign == "//" ? floor_of(a, b) : a - floor_of(a, b) * b};
}

Value real_result(const std::string& sign, double a, double b) {
  if (sign == "+") return {a + b};
  if (sign == "-") return {a - b};
  if (sign == "*") return {a * b};
  if (b == 0) trouble("something is divided by zero");
  if (sign == "/") return {a / b};
  not_there("'" + sign + "' of numbers with a fraction");
}

}  // namespace

Value apply_binary(const std::string& sign, const Value& left, const Value& right) {
  if (sign == "~") return {text_of(left) + text_of(right)};
  if (sign == "**") not_there("'**'");
  const std::optional<double> a = any_number(left), b = any_number(right);
  if (a && b && (sign == "/" || left.as<double>() || right.as<double>())) {
    const Value made = real_result(sign, *a, *b);
    if (!std::isfinite(*made.as<double>())) trouble("numbers are too large for " + sign);
    return made;
  }
  if (a && b) return whole_result(sign, *whole_number(left), *whole_number(right));
  if (sign == "+") return sum_of(left, right);
  if (sign == "*" && left.as<std::string>() && b)
    return repeated(*left.as<std::string>(), need_number(right, sign));
  if (sign == "*" && right.as<std::string>() && a)
    return repeated(*right.as<std::string>(), need_number(left, sign));
  trouble("'" + sign + "' is asked of " + left.kind() + " and " + right.kind());
}

}  // namespace prun::chat
