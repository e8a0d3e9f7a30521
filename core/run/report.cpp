#include "run/report.hpp"

#include <cstdio>

#include "base/json.hpp"
#include "base/text.hpp"
#include "program/recompute.hpp"

namespace prun {
namespace {

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

std::string count_text(double count) {
  constexpr const char* units[] = {"", " k", " M", " G", " T", " P"};
  int unit = 0;
  while (count >= 1000 && unit < 5) {
    count /= 1000;
    ++unit;
  }
  return format(unit ? "%.2f%s" : "%.0f%s", count, units[unit]);
}

double step_flops(const Assembly& assembly) {
  return model_flops(assembly.program()) * static_cast<double>(assembly.batch().accumulate);
}

// Whether there is anything to say about it.
bool recomputes(const Assembly& assembly) {
  return chooses_recompute(assembly.program()) || recomputed_text(assembly.program()) != "nothing";
}

double again_flops(const Assembly& assembly) {
  return recomputed_flops(assembly.program()) * static_cast<double>(assembly.batch().accumulate);
}

// "gelu, layernorm in block, 1.20 G FLOPs a step"
std::string recompute_text(const Assembly& assembly) {
  const double flops = again_flops(assembly);
  return recomputed_text(assembly.program()) + (flops > 0 ? ", " + count_text(flops) + " FLOPs a step" : "");
}

}  // namespace

std::string plan_text(const Assembly& assembly) {
  const Plan& plan = assembly.plan();
  const Memory& memory = plan.layout.memory;
  std::string text = "batch       " + assembly.batch().text() + "\n";
  text += "device      " + std::string(assembly.device_info().name.view()) + "\n";
  text += "parameters  " + count_text(static_cast<double>(assembly.parameters())) + "\n";
  text += format("plan        %zu functions, %zu calls a step on %zu queues\n", plan.functions.size(),
                 plan.calls.size(), plan.queues.size());
  const double flops = step_flops(assembly);
  text += "model FLOPs " + count_text(flops) + " a step, " +
          count_text(flops / static_cast<double>(assembly.batch().tokens())) +
          " a token (6 N + 6 layers heads head_dim seq, causal)\n";
  if (recomputes(assembly)) text += "recompute   " + recompute_text(assembly) + "\n";
  text += "memory      " + size_text(static_cast<double>(memory.total())) + "\n";
  for (int r = 0; r < regions; ++r) {
    const std::int64_t bytes = memory.bytes[static_cast<std::size_t>(r)];
    if (bytes)
      text += format("  %-16s %12s\n", name_of(static_cast<Region>(r)),
                     size_text(static_cast<double>(bytes)).c_str());
  }
  return text;
}

std::string plan_json(const Assembly& assembly) {
  const Plan& plan = assembly.plan();
  const BatchArithmetic& batch = assembly.batch();
  JsonWriter json;
  json.begin_object();
  json.name("batch").begin_object();
  json.member("global", batch.global).member("micro", batch.micro).member("accumulate", batch.accumulate);
  json.member("ranks", batch.ranks).member("seq", batch.seq).member("tokens", batch.tokens()).end_object();
  json.member("parameters", assembly.parameters());
  json.member("functions", plan.functions.size()).member("calls", plan.calls.size());
  json.member("model_flops", step_flops(assembly));
  json.member("recompute", recomputed_text(assembly.program()));
  json.member("recomputed_flops", again_flops(assembly));
  json.member("memory_bytes", plan.layout.memory.total());
  json.name("memory").begin_object();
  for (int r = 0; r < regions; ++r)
    json.member(name_of(static_cast<Region>(r)), plan.layout.memory.bytes[static_cast<std::size_t>(r)]);
  json.end_object();
  return json.end_object().take();
}

}  // namespace prun
