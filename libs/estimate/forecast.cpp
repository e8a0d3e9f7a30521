#include "estimate/forecast.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/narrow.hpp"
#include "estimate/costs_file.hpp"
#include "estimate/table_cost_model.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/process_memory.hpp"
#include "train/assemble/recipe_checks.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- predict

// Chooses how many steps to simulate: the last one must be typical, and the more steps overlap, the later
// that is.
SimulateOptions with_steps_for(std::span<const SimulatedRank> ranks, SimulateOptions options) {
  std::int64_t running = 2;
  for (const SimulatedRank& rank : ranks) running = std::max<std::int64_t>(running, rank.plan->running);
  options.steps += 2 * (running - 2);
  return options;
}

}  // namespace

Prediction predict(std::span<const SimulatedRank> ranks, const CostTable& table,
                   Numbered<std::string> devices, const Machine& here, const SimulateOptions& options,
                   Numbered<bool> on_host) {
  const bool has_host = !on_host.empty();
  TableCostModel cost_model(table, std::move(devices), std::move(on_host));
  // Simulate first: the cost model knows which rates it used only afterwards.
  Prediction prediction{simulate(ranks, cost_model, with_steps_for(ranks, options)),
                        cost_model.exchanges_alone(), cost_model.notes()};
  prediction.range = cost_model.range();
  if (has_host && cost_model.host_bandwidth() > 0) prediction.host_bandwidth = cost_model.host_bandwidth();
  if (table.machine != here && !prediction.range)
    prediction.notes.push_back("figures of another machine: " + to_text(table.machine) + "; this is " +
                               to_text(here));
  return prediction;
}

// ------------------------------------------------------------------- simulated save

std::vector<double> ends_of_reads(std::span<const SaveLoad> reads, const SavePace& pace) {
  std::vector<double> ends;
  double now = 0, bytes = 0;
  for (const SaveLoad& read : reads) {
    bytes += read.bytes;
    now += read.seconds;
    const double behind = bytes - static_cast<double>(pace.buffer);  // written to the disk by then
    if (behind > 0) now = std::max(now, behind / pace.written_per_second);
    ends.push_back(now);
  }
  return ends;
}

namespace {

// ------------------------------------------------------------------- forecast

// With more ranks than cores, a rank that waits for a message has no core when it arrives. Each collective
// takes this much longer: the median of 40 layouts of four ranks on two cores (Linux 6.18).
constexpr double crowded_exchange = 250e-6;

// Returns true if ranks leave no core free; collectives in host memory need cores too.
bool leaves_no_core(const Assembly& assembly, const Machine& here) {
  const std::int64_t ranks = ranks_of_host(assembly);
  return assembly.device_info().host_memory && ranks > 1 && ranks <= here.cores &&
         ranks * assembly.device_info().threads >= here.cores;
}

std::vector<std::string> names_of_devices(const Assembly& assembly) {
  std::vector<std::string> names;
  for (const DeviceInfo& device : assembly.device_infos()) names.emplace_back(device.name.view());
  return names;
}

// Returns true, by device, if its memory is the host's.
Numbered<bool> devices_on_host(const Assembly& assembly) {
  Numbered<bool> on_host;
  if (assembly.device_infos().size() > 1)
    for (const DeviceInfo& device : assembly.device_infos()) on_host.push_back(device.host_memory);
  return on_host;
}

// Returns true for queues whose comm plugin enqueues.
std::function<bool(const QueueInfo&)> enqueued_queues(const Assembly& assembly, PluginHost& plugins) {
  std::vector<bool> by_axis;
  for (const Axis& axis : assembly.mesh().axes()) {
    CommInfo info;
    if (axis.extent > 1)
      raise(make_comm(assembly.recipe(), assembly.device_info(), plugins,
                      comm_of_axis(assembly.recipe(), plugins, axis.name))
                ->info(&info));
    by_axis.push_back(info.enqueues);
  }
  // All collectives over several axes together use one plugin.
  return [by_axis](const QueueInfo& queue) {
    return queue.communicates() && by_axis[axes_of(queue.axis).front()];
  };
}

// `step` has the plans; null: those of the full step.
Prediction predict_by(const Assembly& assembly, PluginHost& plugins, const CostTable& table,
                      SimulateOptions options = {}, const StepPlans* step = nullptr) {
  const std::vector<SimulatedRank> ranks = all_ranks(assembly.program(), [&](int rank) -> const Plan& {
    return step ? assembly.plan_of(*step, rank) : assembly.plan_of(rank);
  });
  options.enqueued = enqueued_queues(assembly, plugins);
  if (options.ranks_of_host == 0) options.ranks_of_host = ranks_of_host(assembly);
  if (cores_are_crowded(assembly)) {
    options.exchange_delay = crowded_exchange;
    options.cores_of_host = this_machine().cores;
    options.cores_of = [threads =
                            static_cast<double>(assembly.device_info().threads)](const QueueInfo& queue) {
      return queue.workers && queue.device == 0 ? threads : 0;
    };
  }
  const std::optional<CostTable> stated = with_stated_drives(table, assembly, plugins);
  return predict(ranks, stated ? *stated : table, names_of_devices(assembly), this_machine(), options,
                 devices_on_host(assembly));
}

// Predicts the step with drives that take no time; nothing if there are no drives.
std::optional<Prediction> predict_without_drives(const Assembly& assembly, PluginHost& plugins,
                                                 const CostTable& table, const SimulateOptions& options) {
  const std::optional<CostTable> stated = with_stated_drives(table, assembly, plugins);
  std::optional<CostTable> without;
  for (const DeviceInfo& device : assembly.device_infos())
    if (device.tier)
      without = (without ? *without : stated ? *stated : table).without_time_of_drives(device.name.view());
  if (!without) return {};
  return predict_by(assembly, plugins, *without, options);
}

double exposed_transfers(const Simulation& step) {
  double most = 0;
  for (const RankTimes& rank : step.ranks) most = std::max(most, rank.times.exposed_transfers);
  return most;
}

}  // namespace

// Attributes to drives the time that the device waits because of them, even through a collective or a copy in
// between, such as a gather of parameters that are read first. The difference of two simulations may be
// negative, since an earlier call may delay another on shared links; then drives expose nothing.
Exposed exposed_of(const Assembly& assembly, PluginHost& plugins, const CostTable& table,
                   const Simulation& step, std::int64_t ranks_of_host) {
  Exposed exposed{step.exposed_communication(), exposed_transfers(step)};
  SimulateOptions options;
  options.ranks_of_host = ranks_of_host;
  const std::optional<Prediction> without = predict_without_drives(assembly, plugins, table, options);
  if (!without) return exposed;
  exposed.drives = std::max(0.0, step.step_seconds - without->simulation.step_seconds);
  exposed.communication = std::min(exposed.communication, without->simulation.exposed_communication());
  exposed.transfers = std::min(exposed.transfers, exposed_transfers(without->simulation));
  return exposed;
}

Prediction predict_step(const Assembly& assembly, PluginHost& plugins, const CostTable& table,
                        std::int64_t ranks_of_host) {
  const Machine here = this_machine();
  SimulateOptions options;
  options.ranks_of_host = ranks_of_host;
  Prediction prediction = predict_by(assembly, plugins, table, options);
  const DeviceInfo& device = assembly.device_info();
  if (!prediction.host_bandwidth && !devices_on_host(assembly).empty())
    prediction.notes.emplace_back(
        "updates and copies as if the host's memory carried any number of them; prun bench kernels RECIPE "
        "measures what it carries");
  if (prediction.exchanges_alone && !device.host_memory && !table.has_exchanges_of(device.name.view()) &&
      !table.rates_of(device.name.view()))
    prediction.notes.emplace_back(
        "exchanges as between the host's memory; prun bench comm RECIPE measures the device's");
  if (prediction.exchanges_alone && leaves_no_core(assembly, here))
    prediction.notes.push_back(
        detail::concat("the ranks' threads fill the ", here.cores,
                       " cores of this machine: what exchanges take from them is not counted"));
  return prediction;
}

double seconds_of_drives(const Assembly& assembly, const Simulation& step) {
  double most = 0;
  for (const RankTimes& rank : step.ranks) {
    const std::vector<QueueInfo>& queues = rank.simulated.plan->queues;
    double busy = 0;
    for (std::size_t q = 0; q < queues.size(); ++q)
      if (assembly.device_infos()[static_cast<std::size_t>(queues[q].device)].tier)
        busy += rank.times.busy[q];
    most = std::max(most, busy);
  }
  return most;
}

namespace {

// ------------------------------------------------------------------- saves

// Bytes a second: of a copy on an idle machine; of one thread that reads memory while training and writing go
// on; of drives of which the recipe says nothing, at most.
constexpr double copied_per_second = 8e9, read_per_second = 4.5e9, most_of_drives_per_second = 2e9;

double save_rate(const Assembly& assembly) {
  return static_cast<double>(assembly.recipe().bytes("run.save_rate").value_or(0));
}

// Returns, by device, the rates at which a save reads state from a tier, and would write to it: those that
// the recipe states, or at most that of the disk it writes to, which may be the same.
Numbered<DriveRates> drives_of_save(const Assembly& assembly, PluginHost& plugins) {
  const double disk = save_rate(assembly);
  Numbered<DriveRates> drives;
  for (std::size_t device = 0; device < assembly.device_infos().size(); ++device)
    drives.push_back(stated_drives_of(assembly, plugins, device)
                         .value_or(DriveRates{std::min(most_of_drives_per_second, disk), disk}));
  return drives;
}

double read_by_all(const Assembly& assembly, const Plan& plan) {
  return read_per_second *
         static_cast<double>(save_readers(plan, assembly.device_info(), assembly.mesh().world()));
}

// Returns the loads of the reads of a rank's plan. Replicated state is divided among ranks, and the rate of
// drives among those of a host.
std::vector<SaveLoad> loads_of(const Assembly& assembly, const Numbered<DriveRates>& drives,
                               const SimulatedRank& rank) {
  const Program& program = *rank.program;
  const ProcessNeed& need = assembly.process_need_of(rank.rank);
  const double pace = read_by_all(assembly, *rank.plan);
  const auto sharers = static_cast<double>(ranks_of_host(assembly));
  double held = 0;
  std::vector<SaveLoad> loads;
  for (const SaveRead& read : rank.plan->save_reads) {
    SaveLoad& load = loads.emplace_back();
    for (const PersistentValue& value : read) {
      const auto bytes = static_cast<double>(program.local_bytes(value.value));
      const Address& allocation = rank.plan->allocation(value.value);
      const MemoryPlace place = rank.plan->layout.ranges[allocation.range].place;
      load.bytes += bytes;
      load.seconds += bytes / (place.space == Space::disk ? drives.at(place.device).read / sharers : pace);
    }
    held += load.bytes;
  }
  for (SaveLoad& load : loads) {
    load.seconds *= static_cast<double>(need.saved_bytes) / held;
    load.bytes *= static_cast<double>(need.saved_bytes) / held;
  }
  return loads;
}

// States what a save asks of the drives that state is on: it reads bytes of a rank's state there, and may
// write all that it saves to the same ones. Seconds are those of all ranks of a host.
struct DriveUse {
  double bytes = 0, read_seconds = 0, write_seconds = 0;

  DriveUse(const Assembly& assembly, const Numbered<DriveRates>& drives) {
    const Plan& plan = assembly.plan();
    const auto ranks = static_cast<double>(ranks_of_host(assembly)),
               saved = static_cast<double>(assembly.process_need().saved_bytes);
    for (const PersistentValue& one : on_drives(assembly)) {
      const auto size = static_cast<double>(assembly.program().local_bytes(one.value));
      const DriveRates& rates = drives.at(plan.layout.ranges[plan.allocation(one.value).range].place.device);
      bytes += size;
      read_seconds += ranks * size / rates.read;
      write_seconds = std::max(write_seconds, ranks * saved / rates.write);
    }
  }

 private:
  static std::set<PersistentValue> on_drives(const Assembly& assembly) {
    const Plan& plan = assembly.plan();
    std::set<PersistentValue> there;
    for (const HeldSlice& held : assembly.held_slices())
      for (const Id value : {held.value, held.rounded})
        if (value != none && plan.layout.ranges[plan.allocation(value).range].place.space == Space::disk)
          there.insert({value, held.instance});
    return there;
  }
};

// Returns how much later steps end because a save that lasts so long needs their drives for `wanted` seconds.
// While both want all of a drive, each gets half.
double delay_by_drives(const Assembly& assembly, const Simulation& step, const DriveUse& use,
                       double save_seconds, double wanted) {
  const double share =
      use.bytes > 0 ? std::min(1.0, seconds_of_drives(assembly, step) / step.step_seconds) : 0;
  if (share <= 0) return 0;
  const double lasts = std::max(save_seconds, 2 * wanted);
  return std::max(0.0, lasts - (lasts - wanted) / share);
}

// Returns the pause of a save that copies everything before training goes on.
double seconds_to_copy(const Assembly& assembly, const DriveUse& use) {
  const double all = static_cast<double>(assembly.process_need().saved_bytes);
  return std::max(0.0, all - use.bytes) / copied_per_second + use.read_seconds;
}

std::optional<SaveForecast> forecast_save(const Assembly& assembly, PluginHost& plugins,
                                          const std::optional<CostTable>& table, const Forecast& so_far) {
  if (assembly.purpose() != Purpose::training || !saves_between_steps(assembly.recipe())) return {};
  const ProcessNeed& need = assembly.process_need();
  const auto ranks = static_cast<double>(ranks_of_host(assembly));
  const double rate = save_rate(assembly) / ranks;
  SaveForecast save;
  save.seconds = static_cast<double>(need.saved_bytes) / rate;
  const bool copies = save_memory(assembly.recipe()).all;
  const Numbered<DriveRates> drives = drives_of_save(assembly, plugins);
  const DriveUse use(assembly, drives);
  save.still = copies
                   ? seconds_to_copy(assembly, use)
                   : std::max(static_cast<double>(need.saved_bytes - need.save_bytes) / rate,
                              static_cast<double>(need.saved_bytes) / read_by_all(assembly, assembly.plan()));
  if (copies) save.delay = save.still;
  if (!table || !so_far.prediction) return save;
  const Simulation& without = so_far.prediction->simulation;
  if (copies) {
    const double by_drives = delay_by_drives(assembly, without, use, save.seconds, use.write_seconds);
    save.of_drives = by_drives > 0;
    *save.delay += by_drives;
    return save;
  }
  SimulateOptions options;
  options.save_reads = [&](const SimulatedRank& rank) {
    return ends_of_reads(loads_of(assembly, drives, rank),
                         {rate, assembly.process_need_of(rank.rank).save_bytes});
  };
  options.submitted = [&](const QueueInfo& queue) {
    return assembly.device_infos()[queue.device].asynchronous;
  };
  save.simulation = predict_by(assembly, plugins, *table, options).simulation;
  const double by_drives =
      delay_by_drives(assembly, without, use, save.seconds, use.write_seconds + use.read_seconds);
  save.delay = std::max(by_drives, save.simulation->all_seconds - without.all_seconds);
  save.of_drives = by_drives > 0 && *save.delay == by_drives;
  return save;
}

// Lists the sizes of a growing batch, with predictions if there is a table.
std::vector<RampForecast> sizes_of_ramp(const Assembly& assembly) {
  std::vector<RampForecast> sizes;
  const BatchRamp ramp = BatchRamp::of(assembly.recipe());
  if (assembly.purpose() == Purpose::training && !ramp.rungs().empty())
    for (const BatchRamp::Stretch& stretch : ramp.stretches()) sizes.push_back({stretch});
  return sizes;
}

// Seconds of each kind of step.
class StepSeconds {
 public:
  StepSeconds(const Assembly& assembly, PluginHost& plugins, const CostTable& table, const Simulation& full)
      : assembly_(assembly), of_{{assembly.full_step(), full.step_seconds}} {
    for (const StepPlans& step : assembly.other_steps())
      of_[step.kind] = predict_by(assembly, plugins, table, {}, &step).simulation.step_seconds;
  }

  // Returns nothing for a kind that is not planned.
  std::optional<double> of(const StepKind& kind) const {
    const auto found = of_.find(kind);
    return found == of_.end() ? std::nullopt : std::make_optional(found->second);
  }
  // Returns the mean over a period of steps with `accumulate` microbatches.
  std::optional<double> mean(std::int64_t accumulate) const {
    const std::int64_t period = assembly_.period();
    if (period <= 1) return of({accumulate, period == 1});
    const std::optional<double> between = of({accumulate, false}), full = of({accumulate, true});
    if (!between || !full) return {};
    return *between + (*full - *between) / static_cast<double>(period);
  }

 private:
  const Assembly& assembly_;
  std::map<StepKind, double> of_;
};

std::vector<RampForecast> forecast_ramp(const Assembly& assembly, const StepSeconds& seconds) {
  std::vector<RampForecast> sizes = sizes_of_ramp(assembly);
  for (RampForecast& size : sizes)
    size.step_seconds = seconds.mean(assembly.batch().with_global(size.stretch.global).accumulate);
  return sizes;
}

// Returns the ranks that may send other amounts: in a shift, the ranks at the ends send less.
std::set<int> unlike_senders(const Assembly& assembly, const Plan& plan, std::int64_t rank) {
  std::set<int> ranks = {narrow<int>(rank)};
  for (const PlannedFunction& function : plan.functions)
    for (const PlannedStep& step : function.steps)
      if (step.exchange && step.exchange->distance != 0)
        for (const int other : assembly.mesh().group(rank, assembly.program().axis_of(step.op)))
          ranks.insert(other);
  return ranks;
}

std::vector<std::uint64_t> sent_by(const Assembly& assembly, PluginHost& plugins, const Plan& plan) {
  std::vector<std::uint64_t> sent(plan.queues.size(), 0);
  for (const int rank : unlike_senders(assembly, plan, assembly.rank()))
    each_comm({assembly.recipe(), assembly.device_info(), plugins, assembly.mesh(), plan, rank},
              [&](const QueueTraffic& queue) {
                sent[queue.queue] = std::max(sent[queue.queue], queue.needs.bytes_sent);
              });
  return sent;
}

// Returns the bytes sent by a step without ops of `periodic`.
std::uint64_t sent_between(const Assembly& assembly, PluginHost& plugins) {
  std::uint64_t all = 0;
  for (const StepPlans& step : assembly.other_steps())
    if (step.kind == StepKind{assembly.full_step().accumulate, false})
      for (const std::uint64_t bytes : sent_by(assembly, plugins, assembly.plan_of(step, assembly.rank())))
        all += bytes;
  return all;
}

// Forecasts the steps between two that run ops of `periodic`; without `seconds` only the bytes that they
// send.
std::optional<PeriodForecast> forecast_period(const Assembly& assembly, PluginHost& plugins,
                                              const StepSeconds* seconds) {
  if (assembly.purpose() != Purpose::training || assembly.period() == 0) return {};
  const std::int64_t accumulate = assembly.full_step().accumulate;
  PeriodForecast period{assembly.period()};
  period.sent = sent_between(assembly, plugins);
  if (seconds) period.between = seconds->of({accumulate, false});
  if (seconds) period.mean = seconds->mean(accumulate);
  return period;
}

Forecast forecast_time(const Assembly& assembly, PluginHost& plugins,
                       const std::optional<std::filesystem::path>& costs, RatesUse rates) {
  try {
    KnownCosts known = known_costs(costs);
    if (rates == RatesUse::forbidden) known.table.rates.clear();
    const DeviceInfo& device = assembly.device_info();
    if (!device.absent && !known.knows(device.name.view()))
      return {std::nullopt, "no cost table yet; prun bench kernels RECIPE makes one"};
    known.table = costs_for(known.table, device, assembly.recipe(), plugins);
    Forecast forecast{predict_step(assembly, plugins, known.table), ""};
    forecast.exposed = exposed_of(assembly, plugins, known.table, forecast.prediction->simulation);
    forecast.save = forecast_save(assembly, plugins, known.table, forecast);
    const StepSeconds seconds(assembly, plugins, known.table, forecast.prediction->simulation);
    forecast.ramp = forecast_ramp(assembly, seconds);
    forecast.period = forecast_period(assembly, plugins, &seconds);
    if (assembly.plan().speculated() > 0)
      forecast.waiting =
          predict_by(assembly, plugins, known.table, {.speculates = false}).simulation.step_seconds;
    return forecast;
  } catch (const Error& error) {
    // Show a plan without a prediction, unless the prediction was requested.
    if (costs || error.code() == ErrorCode::internal || error.code() == ErrorCode::hang) throw;
    return {std::nullopt, error.what()};
  }
}

}  // namespace

Forecast forecast(const Assembly& assembly, PluginHost& plugins,
                  const std::optional<std::filesystem::path>& costs, RatesUse rates) {
  Forecast forecast = forecast_time(assembly, plugins, costs, rates);
  if (!forecast.prediction) forecast.save = forecast_save(assembly, plugins, {}, forecast);
  if (!forecast.prediction) forecast.ramp = sizes_of_ramp(assembly);
  if (!forecast.prediction) forecast.period = forecast_period(assembly, plugins, nullptr);
  forecast.sent = sent_of(assembly, plugins);
  return forecast;
}

std::vector<std::uint64_t> sent_of(const Assembly& assembly, PluginHost& plugins) {
  return sent_by(assembly, plugins, assembly.plan_of(assembly.rank()));
}

}  // namespace prun
