// Reports the plan to programs.
#include "base/json.hpp"
#include "base/sha256.hpp"
#include "inspect/assumed.hpp"
#include "inspect/dealt_report.hpp"
#include "inspect/offload_report.hpp"
#include "inspect/pipeline_report.hpp"
#include "inspect/plan_facts.hpp"
#include "inspect/purposes.hpp"
#include "inspect/report.hpp"
#include "program/recompute.hpp"

namespace prun {
namespace {

void write_purposes(JsonWriter& json, const std::vector<PurposeBytes>& purposes) {
  json.name("memory").begin_object();
  for (const PurposeBytes& purpose : purposes) json.member(purpose.name, purpose.all());
  json.end_object();
}

void write_purposes_in(JsonWriter& json, const std::vector<PurposeBytes>& purposes, std::size_t range) {
  json.name("memory").begin_object();
  for (const PurposeBytes& purpose : purposes) json.member(purpose.name, purpose.by_range[range]);
  json.end_object();
}

void write_ranges(JsonWriter& json, const Plan& plan, const std::vector<PurposeBytes>& purposes) {
  json.name("ranges").begin_array();
  for (std::size_t r = 0; r < plan.layout.ranges.size(); ++r) {
    const Layout::Range& range = plan.layout.ranges[r];
    json.begin_object().member("device", range.place.device).member("space", name_of(range.place.space));
    json.member("begin", range.begin).member("bytes", range.bytes());
    write_purposes_in(json, purposes, r);
    json.end_object();
  }
  json.end_array();
}

void write_ramp(JsonWriter& json, const Assembly& assembly, const Forecast& forecast) {
  if (forecast.ramp.empty()) return;
  json.name("ramp").begin_array();
  for (const auto& [stretch, seconds] : forecast.ramp) {
    const BatchArithmetic batch = assembly.batch().with_global(stretch.global);
    json.begin_object().member("first_step", stretch.first_step).member("global", batch.global);
    json.member("accumulate", batch.accumulate).member("tokens", batch.tokens());
    if (seconds) json.member("step_seconds", *seconds);
    json.end_object();
  }
  json.end_array();
}

void write_period(JsonWriter& json, const Forecast& forecast) {
  if (!forecast.period) return;
  json.name("periodic").begin_object().member("every", forecast.period->period);
  json.member("sent_bytes_between", forecast.period->sent);
  if (forecast.period->between)
    json.member("step_seconds_between", *forecast.period->between)
        .member("mean_step_seconds", *forecast.period->mean);
  json.end_object();
}

void write_grid(JsonWriter& json, const Assembly& assembly, const Forecast& forecast) {
  json.name("mesh").begin_object();
  for (const Axis& axis : assembly.mesh().axes()) json.member(axis.name, axis.extent);
  json.end_object().name("sent_bytes").begin_object();
  each_traffic(assembly, forecast, [&](const QueueInfo& queue, const std::string& axis, double bytes) {
    json.name(queue.name).begin_object().member("axis", axis).member("bytes", bytes).end_object();
  });
  json.end_object();
}

void write_forecast(JsonWriter& json, const Assembly& assembly, const Forecast& forecast) {
  json.name("prediction");
  if (!forecast.prediction) {
    json.null().member("prediction_missing", forecast.missing);
    return;
  }
  const Simulation& simulation = forecast.prediction->simulation;
  json.begin_object().member("step_seconds", simulation.step_seconds);
  json.member("tokens_per_second", tokens_per_second(assembly, simulation));
  json.member("exposed_communication_seconds", forecast.exposed.communication);
  json.member("slowed_by_exchanges_seconds", simulation.slowed_by_exchanges());
  if (const auto& range = forecast.prediction->range)
    json.member("least_step_seconds", simulation.step_seconds * range->first)
        .member("most_step_seconds", simulation.step_seconds * range->second);
  json.name("notes").begin_array();
  for (const std::string& note : forecast.prediction->notes) json.value(note);
  json.end_array().end_object();
}

void write_batch(JsonWriter& json, const BatchArithmetic& batch) {
  json.name("batch").begin_object();
  json.member("global", batch.global).member("micro", batch.micro).member("accumulate", batch.accumulate);
  json.member("ranks", batch.ranks).member("seq", batch.seq).member("tokens", batch.tokens()).end_object();
}

void write_process(JsonWriter& json, const Assembly& assembly, const Forecast& forecast) {
  json.member("process_bytes", assembly.process_bytes());
  json.member("process_device_bytes", assembly.process_device_bytes());
  json.member("saved_bytes", assembly.process_need().saved_bytes);
  json.member("save_memory_bytes", assembly.process_need().save_bytes);
  if (forecast.save) {
    json.member("save_seconds", forecast.save->seconds);
    json.member("save_delay_seconds", forecast.save->delay.value_or(forecast.save->still));
  }
}

}  // namespace

std::string plan_json(const Assembly& assembly, const Forecast& forecast, const std::string& chosen) {
  const Plan& plan = assembly.plan();
  JsonWriter json;
  json.begin_object().member("auto", chosen);
  write_batch(json, assembly.batch());
  write_ramp(json, assembly, forecast);
  write_period(json, forecast);
  json.member("parameters", assembly.parameters());
  json.member("functions", plan.functions.size()).member("calls", plan.calls.size());
  json.member("fingerprint", sha256_hex(assembly.fingerprint()));
  json.member("model_flops", step_flops(assembly));
  json.member("recompute", recomputed_text(assembly.unlowered()));
  json.member("recomputed_flops", again_flops(assembly));
  write_assumed(json, assembly);
  json.name("to_fit").begin_array();
  for (const std::string& said : assembly.program().requests().said_to_fit) json.value(said);
  json.end_array();
  json.member("memory_bytes", plan.layout.bytes_in_memory());
  if (assembly.pipeline()) {
    json.name("stage_memory_bytes").begin_array();
    for (const std::int64_t bytes : memory_of_stages(assembly)) json.value(bytes);
    json.end_array();
  }
  write_process(json, assembly, forecast);
  write_crowded_host(json, assembly);
  const std::vector<PurposeBytes> purposes = bytes_by_purpose(assembly.program(), plan);
  write_purposes(json, purposes);
  write_ranges(json, plan, purposes);
  write_grid(json, assembly, forecast);
  write_dealt(json, assembly.program());
  write_offload(json, assembly, forecast);
  write_pipeline(json, assembly);
  write_forecast(json, assembly, forecast);
  return json.end_object().take();
}

}  // namespace prun
