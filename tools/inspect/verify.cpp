#include "inspect/verify.hpp"

#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>

#include "base/json.hpp"
#include "execute/tensors.hpp"
#include "inspect/whole_numbers.hpp"
#include "placement/coded_exchanges.hpp"
#include "train/assemble/batch_ramp.hpp"
#include "train/assemble/tiers.hpp"
#include "train/loop/non_finite.hpp"

namespace prun {
namespace {

double element(const std::byte* data, DType type, std::int64_t i) {
  if (type == DType::f64) return reinterpret_cast<const double*>(data)[i];
  if (type == DType::f32) return static_cast<double>(reinterpret_cast<const float*>(data)[i]);
  if (type == DType::f16)
    return static_cast<double>(static_cast<float>(reinterpret_cast<const f16*>(data)[i]));
  return static_cast<double>(static_cast<float>(reinterpret_cast<const bf16*>(data)[i]));
}

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

// NaN must not pass as "no difference".
double worse(double difference) { return std::isnan(difference) ? INFINITY : difference; }
double relative(double value, double reference) {
  return worse(std::abs(value - reference) / std::max(std::abs(reference), 1e-300));
}

using Tensors = std::map<std::string, std::vector<double>>;

// Holds what the one rank computed.
struct Reference {
  std::vector<StepResult> steps;
  Tensors gradients, parameters;
  WrittenNumbers numbers;
};

// Holds a probe for each rank that is a thread of this process.
class NumberProbes {
 public:
  explicit NumberProbes(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {}

  Probe* add(const Assembly& assembly) {
    const std::scoped_lock lock(mutex_);
    return (probes_[assembly.rank()] = std::make_unique<WholeNumberProbe>(assembly, patterns_)).get();
  }
  WholeNumberProbe* of(const Trainer& trainer) {
    const std::scoped_lock lock(mutex_);
    const auto found = probes_.find(trainer.assembly().rank());
    return found == probes_.end() ? nullptr : found->second.get();
  }
  // Returns none where no values are named: probes would have kernels run one by one.
  Probes probes() {
    if (patterns_.empty()) return {};
    return [this](const Assembly& assembly, Communicators*) { return std::vector<Probe*>{add(assembly)}; };
  }

 private:
  const std::vector<std::string> patterns_;
  std::mutex mutex_;
  std::map<std::int64_t, std::unique_ptr<WholeNumberProbe>> probes_;
};

// Calls body(name, data, type, whole, count) for each run of elements that a rank holds.
template <class Body>
void each_run(Trainer& trainer, bool gradients, Body&& body) {
  const Assembly& assembly = trainer.assembly();
  assembly.each_parameter([&](Id parameter, std::int32_t instance) {
    if (gradients && assembly.program().value(parameter).gradient == none) return;
    const std::string name = assembly.full_name(parameter, instance);
    each_held(assembly.program(), assembly.rank(), parameter, instance,
              gradients ? Kept::gradient : Kept::parameter, [&](const HeldRun& run) {
                body(name, run.read(trainer.memory()).data(), run.type, run.whole, run.count);
              });
  });
}

Tensors snapshot(Trainer& trainer, bool gradients) {
  Tensors all;
  each_run(trainer, gradients,
           [&](const std::string& name, const std::byte* data, DType type, std::int64_t, std::int64_t count) {
             for (std::int64_t i = 0; i < count; ++i) all[name].push_back(element(data, type, i));
           });
  return all;
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

// Compares one rank with the reference.
class Comparison {
 public:
  Comparison(const Reference& reference, double least_of_all)
      : reference_(reference), least_(std::max(least_of_all * norm(reference.gradients), 1e-300)) {}

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
    return differences_;
  }

 private:
  // A step that went beyond what was planned lacks something: it is none to compare.
  void compare_step(const StepResult& result, std::size_t s) {
    const std::string where = "step " + std::to_string(s + 1);
    if (const std::string beyond = beyond_text(static_cast<std::int64_t>(s + 1), result); !beyond.empty())
      throw_error(ErrorCode::bad_input, beyond, "; one rank's step lacks nothing, so plan for as much");
    differences_.loss.take(relative(result.loss, reference_.steps[s].loss), where);
    differences_.grad_norm.take(relative(result.grad_norm, reference_.steps[s].grad_norm), where);
  }

  void compare_numbers(const WrittenNumbers& own, std::int64_t rank) {
    const UnequalNumbers found = unequal(reference_.numbers, own);
    if (found.count > 0)
      differences_.unequal.take(static_cast<double>(found.count),
                                detail::concat(found.where, " on rank ", rank));
  }

  void compare_tensors(Trainer& trainer, bool gradients) {
    const std::string rank = " on rank " + std::to_string(trainer.assembly().rank());
    each_run(
        trainer, gradients,
        [&](const std::string& name, const std::byte* data, DType type, std::int64_t whole,
            std::int64_t count) {
          const std::vector<double>& right =
              (gradients ? reference_.gradients : reference_.parameters).at(name);
          double largest = 0;
          for (std::int64_t i = 0; i < count; ++i)
            largest = std::max(largest, worse(std::abs(element(data, type, i) -
                                                       right.at(static_cast<std::size_t>(whole + i)))));
          const double scale = gradients ? std::max(norm(right), least_) : 1.0;
          (gradients ? differences_.gradient : differences_.parameter).take(largest / scale, name + rank);
        });
  }

  const Reference& reference_;
  const double least_;  // is what a tensor's gradients are compared by, at least
  LayoutDifferences differences_;
};

Reference train_reference(const Recipe& recipe, PluginHost& plugins, const VerifyOptions& options) {
  const Assembly assembly(recipe, plugins);
  NumberProbes probes(options.exact);
  Membership alone;
  alone.probes = probes.probes();
  Trainer trainer(assembly, plugins, std::move(alone));
  WholeNumberProbe* const probe = probes.of(trainer);
  if (probe) probe->watch(trainer.memory());
  Reference reference;
  reference.steps.push_back(trainer.step());
  if (probe) reference.numbers = probe->take();
  reference.gradients = snapshot(trainer, true);
  trainer.run(options.steps - 1, [&](const StepResult& result) { reference.steps.push_back(result); });
  reference.parameters = snapshot(trainer, false);
  return reference;
}

}  // namespace

void Difference::take(double candidate, const std::string& place) {
  if (candidate < value || (candidate == value && !where.empty())) return;
  value = candidate;
  where = place;
}

bool LayoutVerdict::equal() const {
  const bool start = loss.value <= bound && gradient.value <= bound;
  const bool numbers = unequal.value == 0;
  return numbers &&
         (exact_arithmetic ? start && grad_norm.value <= bound && parameter.value <= bound : start);
}

double least_of_all_gradients(const Recipe& recipe, const VerifyOptions& options) {
  const double rounding = of_gradients(recipe, rounding_of), bound = bound_of(recipe, options);
  return bound > rounding ? rounding / bound : 1.0;
}

Recipe one_rank_equivalent(const Recipe& recipe, std::int64_t micro, const Delays& delays) {
  Recipe single = without_ramp(recipe);
  const Mesh mesh = mesh_of(recipe);
  for (const Axis& axis : mesh.axes()) single = single.with("mesh." + axis.name, "1");
  if (delays.at_once) {
    std::string list;
    for (const std::int32_t delay : delays.of) list += (list.empty() ? "" : ", ") + std::to_string(delay);
    single = single.with("optimizer.delays", "[" + list + "]");
  }
  return single.with("batch.micro", std::to_string(micro)).with("run.keep_gradients", "true");
}

namespace {

// Counts the ranks that sum a gradient by codes, and over further axes the sums of these.
std::int64_t ranks_that_round(const Program& program, const Bucket& bucket) {
  std::int64_t ranks = program.mesh().extent(bucket.summed_in_update.value_or(bucket.axis));
  for (const Id id : program.segment(bucket.segment).ops(FunctionKind::reduce)) {
    const Op& op = program.op(id);
    const bool parts = op.operands.front() == bucket.own_sums || op.operands.front() == bucket.own_gradients;
    if (op.exchanges_in_place() && parts) ranks *= program.mesh().extent(program.axis_of(id));
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

// Where ranks round what each of them has before it is summed, each of their microbatches must be one of the
// one rank's.
void check_rounds_alike(const Assembly& assembly) {
  const BatchArithmetic& batch = assembly.batch();
  const Program& program = assembly.program();
  const char* odd = nullptr;
  const Id whole = program.precision().reduce_bits > 1 ? never_rounded(program) : none;
  if (whole != none)
    throw_error(ErrorCode::bad_input,
                "precision.reduce rounds on each rank, and here nobody rounds the gradient of '",
                program.value(whole).name,
                "', which one rank would; verify it with precision.reduce = \"state\"");
  for (std::size_t number = 0; number < program.buckets().size(); ++number) {
    const Bucket& bucket = program.buckets()[number];
    if (!bucket.coded || bucket.all_gradients == none) continue;
    if (ranks_that_round(program, bucket) != batch.ranks)
      odd = "the ranks that sum a gradient are not those that share out the batch";
    else if (batch.accumulate > 1 && (!bucket.kept.gradients || batch.vertical || batch.lanes > 1))
      odd = "a rank adds up several microbatches before it rounds";
    else if (batch.accumulate > 1 && is_shared_by_stages(assembly, number))
      odd = "two stages add up a table's gradients before they round";
  }
  if (odd)
    throw_error(ErrorCode::bad_input, "precision.reduce rounds on each rank, and here ", odd,
                ", which one rank cannot do alike; verify it with precision.reduce = \"state\", or with a "
                "batch.global that is one microbatch of each rank");
}

void check_gathers_alike(const Program& program) {
  const Id whole = program.precision().gather_bits > 0 ? never_rounded(program) : none;
  if (whole != none)
    throw_error(ErrorCode::bad_input, "precision.gather rounds what ranks gather, and here nobody gathers '",
                program.value(whole).name,
                "', which one rank would round; verify it with precision.gather = \"compute\"");
}

// Returns the number of sequences that the one rank takes at once.
std::int64_t micro_of_one_rank(const Assembly& assembly) {
  const BatchArithmetic& batch = assembly.batch();
  check_gathers_alike(assembly.program());
  if (assembly.program().precision().reduce_bits == 0) return batch.micro * batch.ranks;
  check_rounds_alike(assembly);
  return batch.micro;
}

// JSON has no infinity.
std::string to_json(const LayoutDifferences& differences) {
  JsonWriter json(NonFinite::write_null);
  json.begin_array();
  for (const Difference* one : differences.all())
    json.begin_array().value(one->value).value(one->where).end_array();
  return json.end_array().take();
}

void take(LayoutDifferences& differences, const std::string& answer) {
  const JsonValue parsed = parse_json(answer, "a rank's differences");
  const std::vector<Difference*> all = differences.all();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const JsonArray& one = parsed.as_array().at(i).as_array();
    all[i]->take(one.at(0).is_null() ? INFINITY : one.at(0).as_double(), one.at(1).as_string());
  }
}

}  // namespace

MakeQuestion compare_with_one_rank(const Recipe& recipe, const std::vector<SearchPlace>& places,
                                   const VerifyOptions& options) {
  return [=](LocalPlace place) {
    PluginHost plugins(places);
    plugins.set_local(place);
    const Assembly assembly(recipe, plugins);
    refuse_idle_tiers(assembly);
    const Recipe single =
        one_rank_equivalent(recipe, micro_of_one_rank(assembly), assembly.program().delays());
    const auto reference = std::make_shared<const Reference>(train_reference(single, plugins, options));
    const auto probes = std::make_shared<NumberProbes>(options.exact);
    const double least = least_of_all_gradients(recipe, options);
    return Question{[reference, probes, least](Trainer& trainer) {
                      return to_json(Comparison(*reference, least).run(trainer, probes->of(trainer)));
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
  std::string text = detail::concat(verdict.ranks, verdict.ranks == 1 ? " rank" : " ranks", " against one, ",
                                    verdict.steps, " steps, bound ", verdict.bound, "\n");
  const auto line = [&](const char* what, const Difference& difference) {
    char row[256];
    std::snprintf(row, sizeof row, "  %-44s %10.3g  %s\n", what, difference.value, difference.where.c_str());
    text += row;
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
