#include "inspect/verify.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/json.hpp"
#include "base/text.hpp"
#include "inspect/one_rank.hpp"
#include "placement/bucket_groups.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/tiers.hpp"
#include "train/loop/run_report.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- how one rank rounds
// Says how one rank rounds what ranks send in codes, or that it cannot do so as they do.

// Counts the ranks that sum a gradient by codes, and over further axes the sums of these.
std::int64_t ranks_that_round(const Program& program, const Bucket& bucket) {
  std::int64_t ranks = program.mesh().extent(bucket.summed_in_update.value_or(bucket.axis));
  for (const Id id : program.segment(bucket.segment).ops(FunctionKind::reduce)) {
    const Op& op = program.op(id);
    if (!op.exchanges_in_place()) continue;
    const std::optional<ViewOf>& view = program.value(op.operands.front()).view;
    const bool parts = op.operands.front() == bucket.own_gradients ||
                       (view && view->whole == bucket.all_gradients && view->is_part());
    if (parts) ranks *= program.mesh().extent(program.axis_of(id));
  }
  return ranks;
}

// Returns the first value that one rank rounds and that is not sent in codes here, such as an expert that one
// rank has to itself; or none.
Id never_rounded(const Program& program) {
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const Id id : program.segment(segment).values) {
      const Value& value = program.value(id);
      if (value.role != Role::parameter || value.gradient == none || value.copy_of != none) continue;
      const bool coded = value.bucket >= 0 && program.buckets()[value.bucket].coded;
      if (!coded && comes_in_blocks(program, id)) return id;
    }
  return none;
}

// Says whether two stages use a parameter of a bucket, in a pipeline: on one rank as well, the gradients of
// one microbatch that they add come with those of others in between.
bool is_shared_by_stages(const Assembly& assembly, std::size_t bucket) {
  const Program& program = assembly.program();
  if (!assembly.pipeline()) return false;
  if (!program.segment(program.buckets()[bucket].segment).ops(FunctionKind::tie).empty()) return true;
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const Id id : program.segment(segment).values)
      if (const Id original = program.value(id).copy_of;
          original != none && program.value(original).bucket == static_cast<std::int32_t>(bucket))
        return true;
  return false;
}

// Follows a bucket's gradients through a rank's calls: each sum over ranks must have those of one microbatch,
// and no other sum those of the same one. Passes of several microbatches may come before a sum: of a head,
// whose gradient comes with forward, where a schedule has forwards ahead.
class SummedMicrobatches {
 public:
  SummedMicrobatches(const Assembly& assembly, const Plan& plan, std::size_t bucket)
      : program_(assembly.program()), plan_(plan), bucket_(static_cast<std::int32_t>(bucket)) {}

  bool come_one_by_one() {
    for (const Call& call : plan_.calls) {
      const PlannedFunction& function = plan_.functions[call.function];
      if (call.microbatch >= 0 && adds_to_bucket(call)) since_[instance_of(call)].insert(call.microbatch);
      if (function.kind != FunctionKind::reduce) continue;
      if (function.joins.empty() && !sum(function.segment, call.instance)) return false;
      for (const InstancePiece& of : function.joins)
        if (!sum(plan_.functions[of.function].segment, of.instance)) return false;
    }
    return true;
  }

 private:
  bool adds_to_bucket(const Call& call) const {
    if (plan_.functions[call.function].kind == FunctionKind::reduce) return false;
    for (const PlannedStep& step : plan_.steps(call))
      for (std::size_t i = 0; step.op != none && i < program_.op(step.op).operands.size(); ++i) {
        const Id id = program_.op(step.op).operands[i];
        if (id == none || program_.op(step.op).access(i) == Access::read || program_.op(step.op).def->clears)
          continue;
        if (program_.value(id).role == Role::gradient && program_.value(id).bucket == bucket_) return true;
      }
    return false;
  }

  // A segment that repeats has its gradients in its own passes; those of others may be added to elsewhere.
  std::int32_t instance_of(const Call& call) const { return segment().repeat > 1 ? call.instance : -1; }
  const SegmentData& segment() const {
    return program_.segment(program_.buckets()[static_cast<std::size_t>(bucket_)].segment);
  }

  bool sum(Id segment_id, std::int32_t instance) {
    if (segment_id != program_.buckets()[static_cast<std::size_t>(bucket_)].segment) return true;
    const std::int32_t of = segment().repeat > 1 ? instance : -1;
    std::set<std::int32_t>& since = since_[of];
    if (since.size() > 1) return false;
    for (const std::int32_t microbatch : since)
      if (!summed_.insert({of, microbatch}).second) return false;
    since.clear();
    return true;
  }

  const Program& program_;
  const Plan& plan_;
  const std::int32_t bucket_;
  std::map<std::int32_t, std::set<std::int32_t>> since_;  // microbatches since the last sum, by instance
  std::set<std::pair<std::int32_t, std::int32_t>> summed_;
};

bool rounds_each_microbatch(const Assembly& assembly, std::size_t bucket) {
  return std::all_of(assembly.plans().begin(), assembly.plans().end(), [&](const Plan& plan) {
    return SummedMicrobatches(assembly, plan, bucket).come_one_by_one();
  });
}

// Where ranks round what each of them has before it is summed, each of their microbatches must be one of the
// one rank's.
void check_rounds_alike(const Assembly& assembly) {
  const BatchArithmetic& batch = assembly.batch();
  const Program& program = assembly.program();
  const char* odd = nullptr;
  const Id whole = program.precision().reduce_bits > 1 ? never_rounded(program) : none;
  if (whole != none)
    throw_error(ErrorCode::bad_input, "cannot verify this layout with precision.reduce: the gradient of '",
                program.value(whole).name,
                "' is not rounded here, and one rank would round it; set precision.reduce = \"state\"");
  for (std::size_t number = 0; number < program.buckets().size(); ++number) {
    const Bucket& bucket = program.buckets()[number];
    if (!bucket.coded || bucket.all_gradients == none) continue;
    if (ranks_that_round(program, bucket) != batch.ranks)
      odd = "the ranks that sum a gradient are not those that share out the batch";
    else if (batch.accumulate > 1 &&
             (!keeps_summed_parts(program, bucket) || !rounds_each_microbatch(assembly, number)))
      odd = "a rank adds up several microbatches before it rounds";
    else if (batch.accumulate > 1 && is_shared_by_stages(assembly, number))
      odd = "two stages add up a table's gradients before they round";
  }
  if (odd)
    throw_error(ErrorCode::bad_input, "cannot verify this layout with precision.reduce: ", odd,
                ", which one rank cannot imitate; set precision.reduce = \"state\", or a batch.global that "
                "is one microbatch of each rank");
}

void check_gathers_alike(const Program& program) {
  const Id whole = program.precision().gather_bits > 0 ? never_rounded(program) : none;
  if (whole != none)
    throw_error(ErrorCode::bad_input, "cannot verify this layout with precision.gather: '",
                program.value(whole).name,
                "' is not gathered here, and one rank would round it; set precision.gather = \"compute\"");
}

// Returns the number of sequences that the one rank takes at once; it throws where no number would have it
// round what the ranks round.
std::int64_t micro_of_one_rank(const Assembly& assembly) {
  const BatchArithmetic& batch = assembly.batch();
  check_gathers_alike(assembly.program());
  if (assembly.program().precision().reduce_bits == 0) return batch.micro * batch.ranks;
  check_rounds_alike(assembly);
  return batch.micro;
}

// ------------------------------------------------------------------- verify

// Returns how far layouts may be apart that compute in this format: sums in another order differ by some
// roundings. Of bf16 eight bits are left, and of fp16 fewer than its eleven where numbers are small.
double bound_of(const std::string& precision) {
  if (precision == "fp64") return 1e-9;
  return precision == "fp32" ? 1e-5 : 2e-2;
}

// Returns the largest rounding of a number near 1.
double rounding_of(const std::string& precision) {
  const int bits = precision == "fp64" ? 53 : precision == "fp32" ? 24 : precision == "fp16" ? 11 : 8;
  return std::ldexp(1.0, -bits);
}

// Returns the largest of `what` over formats that gradients pass through. In codes they are rounded alike.
double of_gradients(const Recipe& recipe, double (*what)(const std::string&)) {
  double largest = what(recipe.text("precision.compute"));
  for (const char* key : {"precision.gradient", "precision.reduce"})
    if (const std::string& type = recipe.text(key); type.starts_with("fp") || type.starts_with("bf"))
      largest = std::max(largest, what(type));
  return largest;
}

double bound_of(const Recipe& recipe, const VerifyOptions& options) {
  return options.bound ? *options.bound : of_gradients(recipe, bound_of);
}

double norm(const std::vector<double>& numbers) {
  double squares = 0;
  for (double x : numbers) squares += x * x;
  return std::sqrt(squares);
}

double norm(const Tensors& tensors) {
  double squares = 0;
  for (const auto& [name, numbers] : tensors) squares += norm(numbers) * norm(numbers);
  return std::sqrt(squares);
}

// A layout may come this much further from one rank than a disturbed rank did, which has other roundings.
constexpr double growths_allowed = 4;
// Losses, norms and the first gradients may move no further than this, however far roundings move them:
// beyond it, "equal" would say nothing. A parameter may, as one whose gradient is nothing but rounding moves
// by a whole step.
constexpr double most_growth = 1e-6;

// Compares one rank with the reference.
class Comparison {
 public:
  Comparison(const Reference& reference, double bound, double least_of_all, MeasuredGrowth* growth)
      : reference_(reference),
        bound_(bound),
        least_(std::max(least_of_all * norm(reference.gradients), 1e-300)),
        growth_(growth) {}

  LayoutDifferences run(Trainer& trainer, WholeNumberProbe* probe) {
    if (probe) probe->watch(trainer.memory());
    compare_step(trainer.step(), 0);
    if (probe) compare_numbers(probe->take(), trainer.assembly().rank());
    compare_tensors(trainer, true);
    std::size_t s = 1;
    trainer.run(static_cast<std::int64_t>(reference_.steps.size()) - 1,
                [&](const StepResult& result) { compare_step(result, s++); });
    compare_tensors(trainer, false);
    trainer.compare_replicas();
    judge();
    return differences_;
  }

 private:
  // Is a difference with its place, and how far a disturbance of one rank comes there.
  struct Found {
    Difference* of = nullptr;
    double value = 0;
    std::string where;
    std::function<double(const Growth&)> growth;
    bool is_of_parameters = false;

    double bound(double least, const Growth& measured) const {
      const double allowed = growths_allowed * growth(measured);
      return std::max(least, is_of_parameters ? allowed : std::min(allowed, most_growth));
    }
  };

  // Growth is measured only where something is beyond the bound.
  void judge() {
    const bool beyond =
        std::any_of(found_.begin(), found_.end(), [&](const Found& one) { return one.value > bound_; });
    const Growth* const growth = beyond && growth_ ? &growth_->get() : nullptr;
    for (const Found& one : found_)
      one.of->take(one.value, one.where, growth ? one.bound(bound_, *growth) : bound_);
  }

  // A step that went beyond what was planned lacks something: it is none to compare.
  void compare_step(const StepResult& result, std::size_t s) {
    const std::string where = "step " + std::to_string(s + 1);
    if (const std::string beyond = beyond_text(static_cast<std::int64_t>(s + 1), result); !beyond.empty())
      throw_error(ErrorCode::bad_input, beyond, "; one rank's step lacks nothing, so plan for as much");
    found_.push_back({&differences_.loss, relative(result.loss, reference_.steps[s].loss), where,
                      [s](const Growth& growth) { return growth.losses[s]; }});
    found_.push_back({&differences_.grad_norm, relative(result.grad_norm, reference_.steps[s].grad_norm),
                      where, [s](const Growth& growth) { return growth.norms[s]; }});
  }

  void compare_numbers(const WrittenNumbers& own, std::int64_t rank) {
    const UnequalNumbers found = unequal(reference_.numbers, own);
    if (found.count > 0)
      differences_.unequal.take(static_cast<double>(found.count),
                                detail::concat(found.where, " on rank ", rank), 0);
  }

  void compare_tensors(Trainer& trainer, bool gradients) {
    const std::string rank = " on rank " + std::to_string(trainer.assembly().rank());
    each_compared_run(
        trainer, gradients,
        [&](const std::string& name, const std::byte* data, DType type, std::int64_t whole,
            std::int64_t count) {
          const Tensors& tensors = gradients ? reference_.gradients : reference_.parameters;
          const auto found = tensors.find(name);
          if (found == tensors.end() || std::cmp_less(found->second.size(), whole + count))
            throw_error(
                ErrorCode::bad_input, "cannot compare '", name,
                "': the other run has none of that size; declare it in every mesh, or with compared = false");
          const std::vector<double>& right = found->second;
          double largest = 0;
          for (std::int64_t i = 0; i < count; ++i)
            largest = std::max(largest, worse(std::abs(element_as_double(data, type, i) -
                                                       right.at(static_cast<std::size_t>(whole + i)))));
          const double scale = gradients ? std::max(norm(right), least_) : 1.0;
          found_.push_back({gradients ? &differences_.gradient : &differences_.parameter, largest / scale,
                            name + rank,
                            [=](const Growth& growth) {
                              return (gradients ? growth.gradients : growth.parameters).at(name) / scale;
                            },
                            !gradients});
        });
  }

  const Reference& reference_;
  const double bound_;
  const double least_;            // is what a tensor's gradients are compared by, at least
  MeasuredGrowth* const growth_;  // null where the bound is what was asked for
  std::vector<Found> found_;
  LayoutDifferences differences_;
};

}  // namespace

void Difference::take(double candidate, const std::string& place, double bound) {
  const double more = candidate * allowed, less = value * bound;
  if (!where.empty() && (std::isinf(value) || more < less || (more == less && candidate <= value))) return;
  value = candidate;
  where = place;
  allowed = bound;
}

bool LayoutVerdict::equal() const {
  const bool start = loss.is_allowed() && gradient.is_allowed(), numbers = unequal.value == 0;
  return numbers && start && (!exact_arithmetic || (grad_norm.is_allowed() && parameter.is_allowed()));
}

double least_of_all_gradients(const Recipe& recipe, const VerifyOptions& options) {
  const double rounding = of_gradients(recipe, rounding_of), bound = bound_of(recipe, options);
  return bound > rounding ? rounding / bound : 1.0;
}

Recipe one_rank_equivalent(const Recipe& recipe, std::int64_t micro, const Delays& delays,
                           const std::vector<std::string>& kept) {
  Recipe single = without_ramp(recipe);
  const Mesh mesh = mesh_of(recipe);
  for (const Axis& axis : mesh.axes())
    if (std::find(kept.begin(), kept.end(), axis.name) == kept.end())
      single = single.with("mesh." + axis.name, "1");
  if (delays.at_once) {
    std::string list;
    for (const std::int32_t delay : delays.of) list += (list.empty() ? "" : ", ") + std::to_string(delay);
    single = single.with("optimizer.delays", "[" + list + "]");
  }
  return single.with("batch.micro", std::to_string(micro)).with("run.keep_gradients", "true");
}

namespace {

bool shares_batch(const Program& program, AxisId axis) {
  const Value& input = program.value(program.inputs().front());
  return input.on(axis) == AxisPlacement::sharded(input.dims.front().name);
}

// Returns the axes along which parameters or a strategy's state vary: what ranks compute there depends on how
// many they are. An axis in front of one that shares out the batch stays with it, if it does so as well:
// otherwise the samples of a rank would be others.
std::vector<std::string> axes_that_stay(const Assembly& assembly) {
  const Program& program = assembly.program();
  const Mesh& mesh = program.mesh();
  std::vector<bool> stays(mesh.size());
  for (Id id = 0; id < program.value_count(); ++id)
    for (AxisId axis = 0; axis < mesh.size(); ++axis)
      if (const Value& value = program.value(id);
          (value.declared ? value.compared : value.role == Role::parameter) && mesh.extent(axis) > 1 &&
          value.on(axis).is_varying())
        stays[axis] = true;
  bool batch = false;
  for (AxisId axis = mesh.size(); axis-- > 0;)
    if (mesh.extent(axis) > 1 && shares_batch(program, axis)) stays[axis] = batch |= stays[axis];
  std::vector<std::string> names;
  for (AxisId axis = 0; axis < mesh.size(); ++axis) {
    const std::string name = mesh.name(axis).substr(0, mesh.name(axis).find('.'));  // as the recipe has it
    if (stays[axis] && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

// Returns the recipe of the one rank or, where state varies, of those that differ.
Recipe reference_of(const Recipe& recipe, PluginHost& plugins, const VerifyOptions& options,
                    std::vector<std::string>& stay) {
  const Assembly assembly(recipe, plugins);
  refuse_idle_tiers(assembly);
  stay = axes_that_stay(assembly);
  if (!stay.empty() && !options.exact.empty())
    throw_error(ErrorCode::bad_input,
                "cannot compare exact numbers with those of one rank: the ranks of axis '", join(stay, "+"),
                "' have parameters or state that vary; leave --exact out");
  if (!stay.empty() && assembly.device_info().one_process_each)
    throw_error(ErrorCode::unsupported, "cannot verify on device '", assembly.device_info().name.view(),
                "': the ranks of axis '", join(stay, "+"),
                "' have parameters or state that vary and are compared with as many threads, and the device "
                "needs a process for each; verify on one whose ranks may be threads");
  const Delays& delays = assembly.program().delays();
  const std::int64_t micro = micro_of_one_rank(assembly);
  const Recipe one = one_rank_equivalent(recipe, micro, delays, stay);
  const bool together = assembly.program().precision().reduce_bits == 0;
  const std::int64_t kept = BatchArithmetic::of(one, plugins).ranks, ranks = together ? kept : 1;
  if (!together && kept > 1 && kept < assembly.batch().ranks)
    throw_error(ErrorCode::bad_input,
                "cannot verify this layout with precision.reduce: of the ranks that share the batch only "
                "those of axis '",
                join(stay, "+"),
                "' are kept, and would have other samples; set precision.reduce = \"state\"");
  return in_device_memory(one.with("batch.micro", std::to_string(micro / ranks)), plugins);
}

// JSON has no infinity.
std::string to_json(const LayoutDifferences& differences, const std::string& reference) {
  JsonWriter json(NonFinite::write_null);
  json.begin_array().value(reference);
  for (const Difference* one : differences.all())
    json.begin_array().value(one->value).value(one->where).value(one->allowed).end_array();
  return json.end_array().take();
}

void take(LayoutVerdict& verdict, const std::string& answer) {
  const JsonValue parsed = parse_json(answer, "a rank's differences");
  verdict.reference = parsed.as_array().at(0).as_string();
  const std::vector<Difference*> all = verdict.all();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const JsonArray& one = parsed.as_array().at(i + 1).as_array();
    all[i]->take(one.at(0).is_null() ? INFINITY : one.at(0).as_double(), one.at(1).as_string(),
                 one.at(2).is_null() ? INFINITY : one.at(2).as_double());
  }
}

}  // namespace

MakeQuestion compare_with_one_rank(const Recipe& recipe, const std::vector<SearchPlace>& places,
                                   const VerifyOptions& options) {
  return [=](LocalPlace place) {
    PluginHost plugins(places);
    plugins.set_local(place);
    std::vector<std::string> stay;
    const Recipe single = reference_of(recipe, plugins, options, stay);
    const std::string against =
        stay.empty() ? "one" : detail::concat(mesh_of(single).world(), " of axis ", join(stay, "+"));
    const auto reference =
        std::make_shared<const Reference>(train_reference(single, plugins, options.steps, options.exact));
    const auto probes = std::make_shared<NumberProbes>(options.exact);
    const auto growth = std::make_shared<MeasuredGrowth>([=] {
      PluginHost again(places);
      again.set_local(place);
      return growth_of(single, again, *reference);
    });
    const bool measures = !options.bound && recipe.text("precision.compute") == "fp64";
    const double bound = bound_of(recipe, options), least = least_of_all_gradients(recipe, options);
    return Question{[=](Trainer& trainer) {
                      Comparison comparison(*reference, bound, least, measures ? growth.get() : nullptr);
                      return to_json(comparison.run(trainer, probes->of(trainer)), against);
                    },
                    probes->probes()};
  };
}

LayoutVerdict verify_layout(const Recipe& recipe, const std::vector<SearchPlace>& places,
                            const VerifyOptions& options, const std::vector<std::string>& command) {
  LayoutVerdict verdict;
  verdict.ranks = mesh_of(recipe).world();
  verdict.steps = options.steps;
  verdict.compares_numbers = !options.exact.empty();
  verdict.keeps_gradients = recipe.flag("run.keep_gradients");
  verdict.exact_arithmetic = recipe.text("precision.compute") == "fp64";
  verdict.bound = bound_of(recipe, options);
  for (const std::string& answer :
       ask_ranks(recipe, places, compare_with_one_rank(recipe, places, options), command))
    take(verdict, answer);
  return verdict;
}

std::string to_text(const LayoutVerdict& verdict) {
  std::string text =
      detail::concat(verdict.ranks, verdict.ranks == 1 ? " rank" : " ranks", " against ", verdict.reference,
                     ", ", verdict.steps, " steps, bound ", verdict.bound, "\n");
  const auto line = [&](const char* what, const Difference& difference) {
    char row[256];
    std::snprintf(row, sizeof row, "  %-44s %10.3g  %s", what, difference.value, difference.where.c_str());
    text += row;
    if (difference.allowed > verdict.bound)
      text += detail::concat(" (bound ", difference.allowed, ": roundings of one rank grow as far)");
    text += "\n";
  };
  line("loss, relative", verdict.loss);
  line("gradient norm, relative", verdict.grad_norm);
  if (verdict.keeps_gradients)
    line("gradients of step 1, of the tensor's norm", verdict.gradient);
  else
    text += "  gradients of step 1: not compared, since they are not kept (run.keep_gradients)\n";
  line("parameters after the last step, absolute", verdict.parameter);
  if (verdict.compares_numbers) line("whole numbers of step 1 that are others", verdict.unequal);
  return text + (verdict.equal() ? "equal\n" : "NOT EQUAL\n");
}

}  // namespace prun
