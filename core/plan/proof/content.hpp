// Describes what bytes hold, as the proof of a plan follows it.
#pragma once

#include <cstdint>
#include <string>

#include "program/step_program.hpp"

namespace prun {

// Says which content a value has: its instance, its microbatch, and its step.
struct Content {
  Id value = none;
  std::int32_t instance = -1;
  std::int32_t microbatch = -1;
  // This is the step it was written in or, for what updates change, how many of them it has seen.
  std::int64_t version = 0;

  bool same_but_version(const Content& other) const {
    return value == other.value && instance == other.instance && microbatch == other.microbatch;
  }
};

// Says what a value's version counts.
enum class Counts : std::uint8_t {
  steps,    // steps: it is made anew in each
  updates,  // updates: parameters, masters, moments, and their copies
  nothing,  // nothing: it stays as it is, or it is unknown when it changes
};

// States the versions that a reader may find.
struct Versions {
  std::int64_t oldest = 0, newest = 0;
  Counts count = Counts::steps;
};

std::string describe(const Program& program, const Content& content);

}  // namespace prun
