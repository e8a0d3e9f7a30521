// The plan for people and for programs: batch, memory by purpose, FLOPs.
#pragma once

#include <string>

#include "run/assembly.hpp"

namespace prun {

std::string plan_text(const Assembly& assembly);
std::string plan_json(const Assembly& assembly);

}  // namespace prun
