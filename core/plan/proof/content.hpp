// States what bytes hold, in the proof of a plan. Example: {value = block.x, instance = 3, microbatch = 1,
// version = 7}: the input of layer 3, microbatch 1, of step 7.
#pragma once

#include <cstdint>
#include <string>

#include "program/step_program.hpp"

namespace prun {

// A value's instance, microbatch and step.
struct Content {
  Id value = none;
  std::int32_t instance = -1;
  std::int32_t microbatch = -1;
  // The step that wrote it; for what updates change, the number of updates.
  std::int64_t version = 0;

  bool same_but_version(const Content& other) const {
    return value == other.value && instance == other.instance && microbatch == other.microbatch;
  }
};

// A value's version counts these.
enum class Counts : std::uint8_t {
  steps,    // it is written in each step
  updates,  // parameters, masters, moments, and their copies
  nothing,  // it does not change, or at unknown times
};

// Versions that a reader accepts.
struct Versions {
  std::int64_t oldest = 0, newest = 0;
  Counts count = Counts::steps;
};

std::string describe(const Program& program, const Content& content);

}  // namespace prun
