// Writes the result of a search, as text and as JSON.
#pragma once

#include <string>

#include "search/tune.hpp"

namespace prun {

std::string tune_text(const TuneResult& result, const TuneRequest& request);
std::string tune_json(const TuneResult& result, const TuneRequest& request);

}  // namespace prun
