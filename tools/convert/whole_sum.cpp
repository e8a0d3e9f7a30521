#include "convert/whole_sum.hpp"

#include <limits>

#include "recipe/value.hpp"

namespace prun::convert {

bool WholeSum::add(std::string_view number, char behind) {
  const auto value = recipe::parse_value(recipe::OptionType::integer, std::string(number));
  if (!value || (behind != '+' && behind != '-' && behind != '*' && behind != '/')) return false;
  const std::int64_t factor = std::get<std::int64_t>(*value);
  if (last_ == '/') {
    if (factor == 0) return false;
    if (factor == -1)
      too_large_ |= __builtin_sub_overflow(std::int64_t{0}, product_, &product_);
    else
      product_ /= factor;
  } else {
    too_large_ |= __builtin_mul_overflow(last_ == '*' ? product_ : 1, factor, &product_);
  }
  if (behind == '+' || behind == '-') {
    too_large_ |= sign_ == '-' ? __builtin_sub_overflow(sum_, product_, &sum_)
                               : __builtin_add_overflow(sum_, product_, &sum_);
    sign_ = behind;
    product_ = 1;
  }
  last_ = behind;
  return true;
}

}  // namespace prun::convert
