// Searches over tiny recipes, by rates that are made up: no test depends on what this machine measures.
#pragma once

#include <algorithm>

#include "search/tune.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {

// A host whose cores and links are slow enough that everything counts.
inline CostTable made_up_costs() {
  DeviceRates rates;
  rates.device = "cpu";
  rates.source = "made up";
  rates.flops_per_second = {{DType::f32, 1e9}, {DType::f64, 5e8}};
  rates.bytes_per_second = 1e9;
  rates.fixed = 1e-7;
  rates.within = {1e9, 1e-6};
  rates.between = {1e7, 1e-4};
  rates.least = 0.5;
  rates.most = 2;
  CostTable table;
  table.rates = {rates};
  return table;
}

// What the tiny recipe leaves out: the microbatch, and all of its layout.
inline std::vector<std::string> open(std::vector<std::string> sets = {}) {
  sets.insert(sets.begin(), {"batch.micro=0", "device.threads=1", "comm.default=meet"});
  return sets;
}

inline TuneRequest request_for(std::int64_t ranks) {
  TuneRequest request;
  request.scope.ranks = ranks;
  request.threads = 2;
  request.why = false;
  return request;
}

inline TuneResult tuned(const Recipe& recipe, const TuneRequest& request,
                        const CostTable& costs = made_up_costs()) {
  return tune(recipe, plugins(), costs, request);
}

inline bool has(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

inline bool any_has(const std::vector<std::string>& list, const std::string& part) {
  return std::any_of(list.begin(), list.end(),
                     [&](const std::string& one) { return one.find(part) != std::string::npos; });
}

inline Recipe read(const std::string& text) { return Recipe::parse(text, "tuned", {}, plugins().catalog()); }

// What an Error says, or nothing.
template <class Body>
std::string refusal_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace prun::test
