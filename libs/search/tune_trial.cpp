#include "search/tune_trial.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/text.hpp"
#include "estimate/costs.hpp"
#include "estimate/costs_file.hpp"
#include "estimate/forecast.hpp"
#include "estimate/table_cost_model.hpp"
#include "plan/make/make_plan.hpp"
#include "plan/pipeline/timing.hpp"
#include "program/flops.hpp"
#include "program/recompute.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/plan_maker.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- tune trial

// ------------------------------------------------------------ outline costs

// Estimates an outline of a plan by a cost table: seconds of a step, and bytes of a rank.
struct OutlineCosts {
  double computed = 0;     // time of kernels alone, on the queue that computes
  double passes = 0;       // time of forward and backward of all microbatches, with their exchanges
  double rest = 0;         // time of what else the computing queue does in a step
  double beside = 0;       // time of the busiest other queue
  std::int64_t bytes = 0;  // memory of the recipe's device, without what depends on the order of calls
};

bool is_pass(FunctionKind kind) {
  return kind == FunctionKind::forward || kind == FunctionKind::backward ||
         kind == FunctionKind::backward_weight;
}

class OutlineReader {
 public:
  OutlineReader(const Assembly& written, const PlanOutline& outline, CostModel& cost_model,
                std::int64_t ranks_of_host)
      : written_(written),
        program_(written.program()),
        plan_(outline.plan),
        cost_model_(cost_model),
        ranks_of_host_(ranks_of_host),
        microbatches_(static_cast<double>(written.batch().accumulate)) {
    for (const Bucket& bucket : program_.buckets()) {
      gathers_ |= gathers_parameters(program_, bucket);
      reduces_ |= keeps_summed_parts(program_, bucket);
    }
    for (const Instance& instance : plan_.instances)
      if (!instance.is_stub()) ++instances_[instance.segment];
    instances_[program_.step_segment()] = 1;
  }

  OutlineCosts read() {
    OutlineCosts costs;
    std::map<std::int32_t, double> others;
    for (const PlannedFunction& function : plan_.functions) {
      const auto found = instances_.find(function.segment);
      if (found == instances_.end() || calls_of(function.kind) == 0) continue;
      const double times = static_cast<double>(found->second) * calls_of(function.kind);
      for (const Piece& piece : function.pieces) {
        const double seconds = times * seconds_of(function, piece);
        const QueueInfo& queue = plan_.queues[piece.queue];
        const bool computes = queue.workers && queue.device == 0;
        if (computes) costs.computed += seconds;
        if (is_pass(function.kind))
          costs.passes += seconds;
        else if (computes)
          costs.rest += seconds;
        if (!computes) others[piece.queue] += seconds;
      }
    }
    for (const auto& [queue, seconds] : others) costs.beside = std::max(costs.beside, seconds);
    return costs;
  }

 private:
  // Returns how often a step calls a function of an instance.
  double calls_of(FunctionKind kind) const {
    switch (kind) {
      case FunctionKind::load:
      case FunctionKind::forward:
      case FunctionKind::backward:
      case FunctionKind::backward_weight:
      case FunctionKind::clear:
      case FunctionKind::put_away:
      case FunctionKind::bring_back: return microbatches_;
      case FunctionKind::gather: return gathers_ ? 2 * microbatches_ : 1;
      case FunctionKind::reduce: return reduces_ ? microbatches_ : 1;
      case FunctionKind::zero:  // since most sums begin by a write
      case FunctionKind::diagnose: return 0;
      default: return 1;
    }
  }

  double seconds_of(const PlannedFunction& function, const Piece& piece) {
    double seconds = 0;
    const QueueInfo& queue = plan_.queues[piece.queue];
    for (std::int32_t i = piece.first; i < piece.last; ++i) {
      const PlannedStep& step = function.steps[i];
      if (step.exchange)
        seconds += exchange(*step.exchange, queue);
      else if (step.kernel)
        seconds += cost_model_.kernel(program_, step);
    }
    return seconds + cost_model_.overheads().call;
  }

  double exchange(const PlannedExchange& exchange, const QueueInfo& queue) {
    const std::vector<int> members = queue.members(program_.mesh(), written_.rank());
    const auto count = static_cast<std::int64_t>(members.size());
    const bool far =
        ranks_of_host_ > 0 && members.front() / ranks_of_host_ != members.back() / ranks_of_host_;
    return far ? cost_model_.far_exchange(exchange, count, queue.name)
               : cost_model_.exchange(exchange, count, queue.name);
  }

  const Assembly& written_;
  const Program& program_;
  const Plan& plan_;
  CostModel& cost_model_;
  const std::int64_t ranks_of_host_;
  const double microbatches_;
  bool gathers_ = false, reduces_ = false;
  std::map<Id, std::int64_t> instances_;  // number of instances by segment
};

// Counts the bytes in the first range, of the regions whose size does not depend on the order of calls.
std::int64_t bytes_of(const PlanOutline& outline, std::int64_t alive) {
  const Plan& plan = outline.plan;
  const auto in_region = [&](Region region, std::int64_t& most) {
    std::int64_t sum = 0;
    for (const std::int64_t bytes : bytes_by_instance(plan, outline.sizes, region, 0)) {
      sum += bytes;
      most = std::max(most, bytes);
    }
    return sum;
  };
  std::int64_t bytes = 0, ignored = 0;
  for (const Region region : {Region::parameter, Region::gradient, Region::state})
    bytes += in_region(region, ignored);
  bytes += alive * (in_region(Region::slot, ignored) + in_region(Region::boundary, ignored));
  std::int64_t gathered = 0, scratch = 0;
  in_region(Region::gathered, gathered);
  for (const PlannedFunction& function : plan.functions)
    if (!function.scratch_bytes.empty()) scratch = std::max(scratch, function.scratch_bytes.front());
  return bytes + gathered + scratch;
}

// `alive` is the largest number of microbatches whose forward is done and whose backward is not.
OutlineCosts costs_of(const Assembly& written, const PlanOutline& outline, CostModel& cost_model,
                      std::int64_t ranks_of_host, std::int64_t alive) {
  OutlineCosts costs = OutlineReader(written, outline, cost_model, ranks_of_host).read();
  costs.bytes = bytes_of(outline, alive);
  return costs;
}

std::vector<std::string> names_of_devices(const Assembly& assembly) {
  std::vector<std::string> names;
  for (const DeviceInfo& device : assembly.device_infos()) names.emplace_back(device.name.view());
  return names;
}

// Says whether an error means that this combination is impossible: that is no fault of prun.
bool is_refusal(const Error& error) {
  return error.code() == ErrorCode::bad_input || error.code() == ErrorCode::unsupported ||
         error.code() == ErrorCode::not_found;
}

// Describes a pipeline's ranks, by its order alone.
struct PipelineShape {
  double bubble = 0;
  std::int64_t alive = 1;
};
PipelineShape shape_of(const Assembly& written) {
  const BatchArithmetic& batch = written.batch();
  if (!written.pipeline()) return {0, batch.vertical ? batch.accumulate : batch.interleave};
  const PipelineOrder& order = written.pipeline()->order;
  const PipelineTiming timing = time_schedule(order, {});
  const auto chunks = static_cast<std::int64_t>(order.shape.chunks);
  const std::int64_t peak = *std::max_element(timing.peak.begin(), timing.peak.end());
  return {bubble_of(order), std::max<std::int64_t>(1, peak / chunks)};
}

std::string place_text(MemoryPlace place) {
  const std::string space = name_of(place.space);
  return place.device == 0 ? space : detail::concat(space, " of device ", place.device);
}

// Returns the memory of the plan that needs most.
std::vector<PlaceBytes> memory_of(const Assembly& assembly) {
  const auto fuller = [&](const Plan& a, const Plan& b) {
    return assembly.bytes_in_memory_of(0, a) < assembly.bytes_in_memory_of(0, b);
  };
  const Plan& fullest = *std::max_element(assembly.plans().begin(), assembly.plans().end(), fuller);
  std::vector<PlaceBytes> memory;
  for (const Layout::Range& range : fullest.layout.ranges)
    if (range.bytes() > 0) memory.push_back({place_text(range.place), range.bytes()});
  return memory;
}

}  // namespace

Trial::Trial(const TrialBase& base) : base_(base), plugins_(base.places) {
  if (base.ranks_of_host > 1) plugins_.set_local({0, static_cast<int>(base.ranks_of_host), true, true});
}

Recipe Trial::recipe(const std::vector<std::string>& sets) {
  return Recipe::parse(base_.recipe, "the recipe", sets, plugins_.catalog());
}

std::int64_t Trial::limit_of(const Assembly& written) const {
  const std::int64_t all = written.device_info().memory_bytes - written.device_info().process_device_bytes;
  const std::optional<std::int64_t> said = written.recipe().section("device").bytes("memory");
  return said ? std::min(*said, all) : all;
}

Estimate Trial::estimate_of(PlanMaker& maker, const PlannedChoice& choice) {
  const Assembly written = maker.write(choice);
  const std::optional<CostTable> stated = with_stated_drives(*base_.costs, written, plugins_);
  TableCostModel cost_model(stated ? *stated : *base_.costs, names_of_devices(written));
  const PipelineShape shape = shape_of(written);
  Estimate estimate{Fate::good, "", 0, 0, 0};
  double passes = 0, rest = 0, beside = 0;
  for (const PlanOutline& outline : maker.outlines(written)) {
    const OutlineCosts costs = costs_of(written, outline, cost_model, base_.ranks_of_host, shape.alive);
    estimate.least = std::max({estimate.least, costs.computed, costs.beside});
    estimate.bytes = std::max(estimate.bytes, costs.bytes);
    passes = std::max(passes, costs.passes);
    rest = std::max(rest, costs.rest);
    beside = std::max(beside, costs.beside);
  }
  estimate.likely = std::max(passes / (1 - shape.bubble) + rest, beside);
  if (estimate.bytes > limit_of(written)) estimate.fate = Fate::too_large;
  return estimate;
}

// Estimates. If strategies leave to the planner how much room they make, it makes no room or, if that does
// not fit, all room.
Estimate Trial::estimate(const std::vector<std::string>& sets) {
  try {
    PlanMaker maker(std::make_shared<PlannedRecipe>(recipe(sets), plugins_, 0, Purpose::training));
    Estimate first = estimate_of(maker, {});
    if (first.fate == Fate::good) return first;
    const Assembly written = maker.write({});
    constexpr std::size_t last_way = std::numeric_limits<std::size_t>::max();
    PlannedChoice most{{}, {last_way, last_way}};
    if (chooses_recompute(written.unlowered()))
      most.recompute = recompute_choices(written.unlowered()).back();
    Estimate last = estimate_of(maker, most);
    return last.fate == Fate::good ? last : first;
  } catch (const NoFigure& error) {
    return {Fate::unpriced, error.what(), 0, 0, 0};
  } catch (const Error& error) {
    if (!is_refusal(error)) throw;
    return {Fate::refused, std::string(first_line(error.what())), 0, 0, 0};
  }
}

Planned Trial::plan(const std::vector<std::string>& sets, bool proven) {
  Planned planned;
  try {
    const Assembly assembly =
        proven ? Assembly(recipe(sets), plugins_) : assemble_unproven(recipe(sets), plugins_);
    check_hosts_have_room(assembly);
    return look(assembly, *base_.costs);
  } catch (const DoesNotFit& error) {
    planned.fate = Fate::too_large;
    planned.why = first_line(error.what());
  } catch (const NoFigure& error) {
    planned.fate = Fate::unpriced;
    planned.why = error.what();
  } catch (const Error& error) {
    if (!is_refusal(error)) throw;
    planned.why = first_line(error.what());
  }
  return planned;
}

Planned Trial::look(const Assembly& assembly, const CostTable& costs) {
  const Prediction prediction = predict_step(assembly, plugins_, costs, base_.ranks_of_host);
  const Simulation& simulation = prediction.simulation;
  Planned planned;
  planned.fate = Fate::good;
  planned.step_seconds = simulation.step_seconds;
  planned.range = prediction.range;
  planned.exposed = exposed_of(assembly, plugins_, costs, simulation, base_.ranks_of_host);
  planned.bubble = assembly.pipeline() ? bubble_of(assembly.pipeline()->order) : 0;
  planned.tokens_per_second = static_cast<double>(assembly.batch().tokens()) / planned.step_seconds;
  planned.model_flops = model_flops(assembly.unlowered()) * static_cast<double>(assembly.batch().accumulate);
  const DeviceRates* const rates = costs.rates_of(assembly.device_info().name.view());
  double peak = assembly.device_info().peak_flops;
  if (peak <= 0 && rates && rates->peak_flops) peak = *rates->peak_flops;
  const auto ranks = static_cast<double>(assembly.mesh().world());
  // Model FLOPs of a stage are those of the whole chain: each rank of other axes has a part of them.
  if (peak > 0) planned.mfu = planned.model_flops / planned.step_seconds / (peak * ranks);
  for (const RankTimes& rank : simulation.ranks)
    planned.busy = std::max(planned.busy, rank.times.busy.front());
  for (const Plan& plan : assembly.plans())
    planned.device_bytes = std::max(planned.device_bytes, assembly.bytes_in_memory_of(0, plan));
  planned.memory = memory_of(assembly);
  const std::vector<std::uint64_t> sent = sent_of(assembly, plugins_);
  for (std::size_t queue = 0; queue < sent.size(); ++queue)
    if (const QueueInfo& info = assembly.plan().queues[queue]; info.communicates())
      planned.sent.push_back({info.name, assembly.mesh().name(info.axis), static_cast<double>(sent[queue])});
  planned.notes = prediction.notes;
  return planned;
}

namespace {

// ------------------------------------------------------------------- unmeasured

class PlanReader {
 public:
  PlanReader(const Program& program, const Plan& plan, const Numbered<std::string>& devices,
             const CostTable& costs)
      : program_(program), plan_(plan), devices_(devices), costs_(costs), cost_model_(costs, devices) {}

  Unmeasured read() {
    for (const Call& call : plan_.calls) {
      const PlannedFunction& function = plan_.functions[call.function];
      const Piece& piece = function.pieces[call.piece];
      for (std::int32_t i = piece.first; i < piece.last; ++i)
        if (const PlannedStep& step = function.steps[i]; step.kernel) add(step);
    }
    return {seconds_, 0, static_cast<std::int64_t>(shapes_.size())};
  }

 private:
  // Adds a step; each step of a function is looked up once, however often it is called.
  void add(const PlannedStep& step) {
    const auto [known, is_new] = by_step_.try_emplace(&step, 0.0);
    if (is_new) {
      const Op& op = program_.op(step.op);
      const ExactKey key{devices_.at(step.device), shape_key(*op.def, program_.local_shape(op))};
      if (costs_.exact.count(key) == 0) {
        known->second = cost_model_.kernel(program_, step);
        shapes_.insert(key);
      }
    }
    seconds_ += known->second;
  }

  const Program& program_;
  const Plan& plan_;
  const Numbered<std::string>& devices_;
  const CostTable& costs_;
  TableCostModel cost_model_;
  double seconds_ = 0;
  std::set<ExactKey> shapes_;
  std::map<const PlannedStep*, double> by_step_;
};

}  // namespace

Unmeasured unmeasured_of(const Assembly& assembly, const CostTable& costs) {
  Numbered<std::string> devices;
  for (const DeviceInfo& device : assembly.device_infos()) devices.emplace_back(device.name.view());
  Unmeasured most;
  const std::vector<int> stages =
      assembly.pipeline() ? assembly.mesh().group(0, assembly.pipeline()->axis) : std::vector<int>{0};
  for (const int rank : stages) {
    Unmeasured one = PlanReader(assembly.program(), assembly.plan_of(rank), devices, costs).read();
    one.rank = rank;
    if (one.seconds > most.seconds) most = one;
  }
  return most;
}

}  // namespace prun
