// Gives a plugin options without a recipe: FakeOptions options{{"path", "x.txt"}, {"every", 2}}.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "prun/options.hpp"

namespace prun::test {

class OptionValue {
 public:
  OptionValue(int value) : value_(std::int64_t{value}) {}
  OptionValue(std::int64_t value) : value_(value) {}
  OptionValue(double value) : value_(value) {}
  OptionValue(bool value) : value_(value) {}
  OptionValue(const char* value) : value_(std::string(value)) {}
  OptionValue(std::string value) : value_(std::move(value)) {}
  OptionValue(std::vector<double> values) : value_(std::move(values)) {}
  OptionValue(std::vector<std::string> values) : value_(std::move(values)) {}

  template <class T>
  const T* as() const {
    return std::get_if<T>(&value_);
  }

 private:
  std::variant<std::int64_t, double, bool, std::string, std::vector<double>, std::vector<std::string>> value_;
};

// It must outlive the Options it gives. A key that is absent or of another type is an internal error.
class FakeOptions {
 public:
  FakeOptions(std::initializer_list<std::pair<const std::string, OptionValue>> values) : values_(values) {}
  FakeOptions(const FakeOptions&) = delete;
  FakeOptions& operator=(const FakeOptions&) = delete;

  Options options() { return Options(api()); }
  OptionsApi api() {
    return {sizeof(OptionsApi),
            this,
            &scalar<std::int64_t>,
            &scalar<double>,
            &scalar<bool>,
            &text,
            &list_size,
            &list_number,
            &list_text,
            &has};
  }

 private:
  template <class T>
  static const T& find(void* section, Text key) {
    const auto& values = static_cast<FakeOptions*>(section)->values_;
    const auto found = values.find(std::string(key.view()));
    const T* value = found == values.end() ? nullptr : found->second.template as<T>();
    if (!value) throw_error(ErrorCode::internal, "no option '", key.view(), "' of the asked type");
    return *value;
  }
  template <class T>
  static Status scalar(void* section, Text key, T* value) {
    return guard([&] { *value = find<T>(section, key); });
  }
  static Status has(void* section, Text key, bool* given) {
    return guard(
        [&] { *given = static_cast<FakeOptions*>(section)->values_.count(std::string(key.view())) != 0; });
  }
  static Status text(void* section, Text key, Text* value) {
    return guard([&] { *value = find<std::string>(section, key); });
  }
  static Status list_size(void* section, Text key, std::uint64_t* size) {
    const Status numbers = guard([&] { *size = find<std::vector<double>>(section, key).size(); });
    if (numbers.ok()) return numbers;
    return guard([&] { *size = find<std::vector<std::string>>(section, key).size(); });
  }
  static Status list_number(void* section, Text key, std::uint64_t index, double* value) {
    return guard([&] { *value = find<std::vector<double>>(section, key).at(index); });
  }
  static Status list_text(void* section, Text key, std::uint64_t index, Text* value) {
    return guard([&] { *value = find<std::vector<std::string>>(section, key).at(index); });
  }

  std::map<std::string, OptionValue> values_;
};

}  // namespace prun::test
