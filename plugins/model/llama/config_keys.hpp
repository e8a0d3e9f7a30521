// Reads keys that a config.json may lack.
#pragma once

#include <cstdint>
#include <string_view>

#include "prun/options.hpp"

namespace prun {

inline std::int64_t integer_or(const Options& config, std::string_view key, std::int64_t otherwise) {
  return config.has(key) ? config.integer(key) : otherwise;
}

inline double number_or(const Options& config, std::string_view key, double otherwise) {
  return config.has(key) ? config.number(key) : otherwise;
}

}  // namespace prun
