// Reads keys that a config.json may lack, and writes lists of numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "prun/foreign.hpp"

namespace prun {

inline std::int64_t integer_or(const Options& config, std::string_view key, std::int64_t otherwise) {
  return config.has(key) ? config.integer(key) : otherwise;
}

inline double number_or(const Options& config, std::string_view key, double otherwise) {
  return config.has(key) ? config.number(key) : otherwise;
}

// Writes a list of numbers.
inline void write_numbers(ConfigWriter& config, const std::string& key, const std::vector<double>& list) {
  for (const double number : list) config.set(key + "[]", number);
}

}  // namespace prun
