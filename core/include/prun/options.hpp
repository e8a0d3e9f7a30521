// SPDX-License-Identifier: Apache-2.0
// A plugin's section of the recipe, already checked against the schema that it declared. It is valid while
// the plugin's constructor runs: read what you need there.
#pragma once

#include <string>
#include <vector>

#include "prun/status.hpp"

namespace prun {

struct OptionsApi {
  std::uint64_t struct_size;
  void* section;
  Status (*integer)(void* section, Text key, std::int64_t* value);
  Status (*number)(void* section, Text key, double* value);
  Status (*flag)(void* section, Text key, bool* value);
  Status (*text)(void* section, Text key, Text* value);  // the text lives as long as the recipe
  Status (*list_size)(void* section, Text key, std::uint64_t* size);
  Status (*list_number)(void* section, Text key, std::uint64_t index, double* value);
  Status (*list_text)(void* section, Text key, std::uint64_t index, Text* value);
  Status (*has)(void* section, Text key, bool* given);
  std::int32_t local_rank = 0;
  std::int32_t local_ranks = 1;
};

// Reads a plugin's options, as in options.integer("layers"): a key that the plugin did not declare, or
// declared with another type, is an error.
class Options {
 public:
  explicit Options(const OptionsApi& api) : api_(api) {}

  // Says whether there is a value: false for an option whose default is `none` and that the recipe leaves
  // out.
  bool has(std::string_view key) const { return get<bool>(api_.has, key); }
  std::int64_t integer(std::string_view key) const { return get<std::int64_t>(api_.integer, key); }
  double number(std::string_view key) const { return get<double>(api_.number, key); }
  bool flag(std::string_view key) const { return get<bool>(api_.flag, key); }
  std::string text(std::string_view key) const { return std::string(get<Text>(api_.text, key).view()); }
  std::vector<double> numbers(std::string_view key) const {
    return list<double, double>(key, api_.list_number, [](double v) { return v; });
  }
  std::vector<std::string> texts(std::string_view key) const {
    return list<std::string, Text>(key, api_.list_text, [](Text t) { return std::string(t.view()); });
  }
  // Return this rank's index on its host, and how many ranks the host has, however they were started: if a
  // host has several units of a device, a rank takes the visible one with its index. Without a launcher they
  // are 0 and 1.
  std::int32_t local_rank() const { return api_.local_rank; }
  std::int32_t local_ranks() const { return api_.local_ranks; }

 private:
  template <class T, class Getter>
  T get(Getter getter, std::string_view key) const {
    T value{};
    raise(getter(api_.section, key, &value));
    return value;
  }
  template <class T, class Raw, class Getter, class Convert>
  std::vector<T> list(std::string_view key, Getter getter, Convert convert) const {
    std::vector<T> values(get<std::uint64_t>(api_.list_size, key));
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      Raw raw{};
      raise(getter(api_.section, key, i, &raw));
      values[i] = convert(raw);
    }
    return values;
  }

  OptionsApi api_;
};

}  // namespace prun
