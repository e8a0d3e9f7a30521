// Says what a program is for.
#pragma once

#include <cstdint>

#include "train/assemble/plugin_host.hpp"

namespace prun {

enum class Purpose : std::uint8_t {
  training,
  evaluation,  // computes the loss of a batch, and changes nothing
  generation,  // computes a head's logits of the next token, position by position if all ops can
  windows,     // does the same for whole sequences, which may be the end of a longer text
};
inline bool makes_text(Purpose purpose) {
  return purpose == Purpose::generation || purpose == Purpose::windows;
}

// Refuses models that do not predict the next token, for a purpose that makes text.
void check_makes_text(const Recipe& recipe, PluginHost& plugins, Purpose purpose);

}  // namespace prun
