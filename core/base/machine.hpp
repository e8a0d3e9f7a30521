// Describes the machine on which figures were taken.
#pragma once

#include <cstdint>
#include <string>

namespace prun {

struct Machine {
  std::string cpu;         // name that the system gives
  std::int64_t cores = 0;  // cores that this process may use
  std::string isa;         // best instruction set: "avx512", "avx2", "generic"

  friend bool operator==(const Machine&, const Machine&) = default;
};

Machine this_machine();

// Returns a text such as "Intel(R) Xeon(R), 2 cores, avx512".
std::string to_text(const Machine& machine);

}  // namespace prun
