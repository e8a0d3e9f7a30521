// LoRA trains two small matrices beside chosen weights, in their place, and freezes everything else.
//   y = W x   becomes   y = W x + factor * up (down dropout(x)),   factor = alpha / rank
// `up` begins as zero, so training begins with the model as it was. Weights are chosen by the names that the
// model's own libraries have for them: queries, keys and values that lie packed here are three there, with
// adapters of their own, which are added to stretches of the packed projection.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "prun/plugin.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- modules
// Finds which weights get adapters: the modules that a model's own library has of them, and those that the
// targets name.

// Is a weight, or elements [begin, end) of one of its dimensions.
struct Module {
  std::string name;  // names its parameters within the segment: "qkv.q_proj"
  std::string path;  // such as "model.layers.*.self_attn.q_proj"
  std::string part;  // empty: the whole weight
  std::int64_t begin = 0, end = 0;
};

class Modules {
 public:
  Modules(ProgramRef program, std::vector<std::string> targets);

  // Returns the modules of a weight that the targets name, in the weight's order.
  std::vector<Module> of(Id weight);
  // Throws where a target names no module.
  void check_all_found() const;

 private:
  std::vector<Module> all_of(Id weight) const;
  bool is_asked_for(const Module& module);
  // Says whether the model has a weight of that name, whatever reads it.
  bool is_weight(const std::string& target) const;

  ProgramRef program_;
  std::vector<std::string> targets_;
  std::set<std::string> found_, known_;
};

constexpr std::string_view everything = "all-linear", suffix = ".weight";

std::string without_suffix(std::string_view name) {
  return std::string(name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name);
}

std::string last_of(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// Matches as PEFT does: the whole path, or its end from a dot on.
bool names(const std::string& target, const std::string& path) {
  return target == path || path.ends_with("." + target);
}

Modules::Modules(ProgramRef program, std::vector<std::string> targets)
    : program_(program), targets_(std::move(targets)) {}

std::vector<Module> Modules::of(Id weight) {
  std::vector<Module> chosen;
  for (Module& module : all_of(weight)) {
    known_.insert(last_of(module.path));
    if (is_asked_for(module)) chosen.push_back(std::move(module));
  }
  return chosen;
}

// A model without names of another library's weights has its own names for them.
std::vector<Module> Modules::all_of(Id weight) const {
  const ValueInfo info = program_.value(weight);
  const std::string own = without_suffix(info.name.view()),
                    segment(Segment(program_, info.segment).info().name.view()),
                    full = segment + "." + std::string(info.name.view());
  std::vector<Module> modules;
  for (const ForeignTensorView& tensor : program_.foreign_weights().tensors) {
    if (tensor.parameter.view() != full || !tensor.name.view().ends_with(suffix)) continue;
    const std::string path = without_suffix(tensor.name.view());
    // Parts that are one tensor there are one module: that of the whole weight.
    if (!modules.empty() && modules.back().path == path)
      modules.back().part = {};
    else
      modules.push_back(
          {own + "." + last_of(path), path, std::string(tensor.part.view()), tensor.begin, tensor.end});
  }
  if (modules.empty()) return {{own, segment + "." + own, "", 0, 0}};
  std::sort(modules.begin(), modules.end(),
            [](const Module& a, const Module& b) { return a.begin < b.begin; });
  return modules;
}

bool Modules::is_asked_for(const Module& module) {
  bool asked = false;
  for (const std::string& target : targets_) {
    if (target != everything && !names(target, module.path)) continue;
    found_.insert(target);
    asked = true;
  }
  return asked;
}

void Modules::check_all_found() const {
  std::string known;
  for (const std::string& name : known_) known += (known.empty() ? "" : ", ") + name;
  if (targets_.empty())
    throw_error(ErrorCode::bad_input, "targets is empty, so nothing would be trained; name some of ", known,
                ", or all-linear");
  for (const std::string& target : targets_) {
    if (found_.contains(target)) continue;
    const std::string all = "; those that can have an adapter are " + (known.empty() ? "none" : known);
    if (is_weight(target))
      throw_error(ErrorCode::bad_input, "targets: '", target,
                  "' is an expert, a router, a table or a norm, beside which there is no adapter", all);
    throw_error(ErrorCode::bad_input, "targets: no weight of the model is called '", target, "'", all);
  }
}

bool Modules::is_weight(const std::string& target) const {
  const Array<ForeignTensorView> tensors = program_.foreign_weights().tensors;
  return std::any_of(tensors.begin(), tensors.end(), [&](const ForeignTensorView& tensor) {
    return names(target, without_suffix(tensor.name.view()));
  });
}

}  // namespace
}  // namespace prun

// ------------------------------------------------------------------- lora

namespace prun {
namespace {

constexpr std::string_view adapted_op = "linear";  // computes y of x, weight, bias
constexpr std::size_t most_parts = 3;              // limits the parts that one op adds

// States the size and shape of all adapters.
struct Adapters {
  Dim rank;
  double factor, dropout;
};

// Gives one linear op its adapters.
class AdaptedLinear {
 public:
  AdaptedLinear(const Segment& segment, Id op, const Adapters& adapters)
      : segment_(segment),
        program_(segment.program()),
        op_(op),
        adapters_(adapters),
        in_dims_(program_.attr(op, "in_dims")) {
    const OpInfo info = program_.op(op);
    x_ = info.operands[0];
    weight_ = info.operands[1];
    y_ = info.operands[3];
    behind_ = next();
  }

  // Modules are in the order in which the weight stores them.
  void add(const std::vector<Module>& modules) {
    freeze();
    Id sum = y_;
    for (std::size_t i = 0; i < modules.size(); i += most_parts)
      sum = add_some(sum, std::span(modules).subspan(i, std::min(most_parts, modules.size() - i)));
    read_instead(sum);
  }

 private:
  void freeze() const {
    const ValueInfo weight = program_.value(weight_);
    program_.set_parameter(weight_, true, weight.decay, weight.lr_scale);
  }

  Id add_some(Id sum, std::span<const Module> modules) {
    if (modules.front().part.empty()) return insert("add", {sum, adapter(modules.front())});
    const std::vector<Dim> out = out_dims();
    const auto named = [&](const Dim& dim) { return dim.name.view() == modules.front().part; };
    const auto at = static_cast<double>(std::find_if(out.begin(), out.end(), named) - out.begin());
    const ValueInfo y = program_.value(y_);
    std::vector<AttrValue> attrs = {{"dim", y.rank - static_cast<double>(out.size()) + at}};
    std::vector<Id> operands(1 + most_parts, none);
    operands[0] = sum;
    static constexpr const char* names[][2] = {
        {"begin_b", "end_b"}, {"begin_c", "end_c"}, {"begin_d", "end_d"}};
    for (std::size_t i = 0; i < modules.size(); ++i) {
      operands[1 + i] = adapter(modules[i]);
      attrs.push_back({names[i][0], static_cast<double>(modules[i].begin)});
      attrs.push_back({names[i][1], static_cast<double>(modules[i].end)});
    }
    return segment_.insert_forward(behind_, "add_parts", operands, 1, attrs)[0];
  }

  // Returns what the adapter adds to y, or to a part of it.
  Id adapter(const Module& module) {
    const auto [down, up] = parameters(module);
    const Id x = adapters_.dropout > 0 ? dropped() : x_;
    const Id low = insert("linear", {x, down, none}, {{"in_dims", in_dims_}});
    return insert("linear", {insert("scale", {low}, {{"factor", adapters_.factor}}), up, none});
  }

  // They are as wide at the start as PEFT's, whose distribution is uniform.
  std::pair<Id, Id> parameters(const Module& module) const {
    const ValueInfo weight = program_.value(weight_);
    std::vector<Dim> in = {adapters_.rank}, out = out_dims();
    double width = 1;
    for (auto d = static_cast<std::int32_t>(out.size()); d < weight.rank; ++d) {
      in.push_back(weight.dims[d]);
      width *= static_cast<double>(weight.dims[d].extent);
    }
    for (Dim& dim : out)
      if (dim.name.view() == module.part)
        dim = {Name(module.part + "_" + std::to_string(module.begin)), module.end - module.begin};
    out.push_back(adapters_.rank);
    const Id down = segment_.weight(module.name + ".lora_A", in, normal(1 / std::sqrt(3 * width)));
    const Id up = segment_.weight(module.name + ".lora_B", out, zeros());
    program_.low_rank(
        {weight_, down, up, module.part, module.begin, module.end, adapters_.factor, adapters_.dropout});
    return {down, up};
  }

  std::vector<Dim> out_dims() const {
    const ValueInfo weight = program_.value(weight_);
    return {weight.dims, weight.dims + weight.rank - static_cast<int>(in_dims_)};
  }

  // Returns the first stream of the segment's layers, which number themselves from 0 as those of others do.
  double first_stream() const {
    std::int64_t before = 0;
    for (const Segment& other : program_.segments())
      if (other.id() > 0 && other.id() < segment_.id()) before += other.info().repeat;
    return static_cast<double>(before << 16);
  }

  // Each adapter has a random stream of its own.
  Id dropped() const {
    double stream = first_stream();
    for (const Id op : segment_.operations(FunctionKind::forward))
      if (program_.op(op).kind.view() == "dropout")
        stream = std::max(stream, program_.attr(op, "stream") + 1);
    return insert("dropout", {x_, segment_.samples(), segment_.runtime("seed")},
                  {{"p", adapters_.dropout}, {"stream", stream}});
  }

  Id insert(const char* kind, std::initializer_list<Id> inputs,
            std::initializer_list<AttrValue> attrs = {}) const {
    return segment_.insert(FunctionKind::forward, behind_, kind, inputs, 1, attrs)[0];
  }

  Id next() const {
    const std::vector<Id> all = segment_.operations(FunctionKind::forward);
    const auto found = std::find(all.begin(), all.end(), op_);
    return found + 1 == all.end() ? none : *(found + 1);
  }

  // Lets all later ops, and the next segment, read the sum instead.
  void read_instead(Id sum) const {
    bool behind = false;
    for (const Id op : segment_.operations(FunctionKind::forward)) {
      if (op == behind_) behind = true;
      const std::uint64_t count = program_.op(op).operands.size;
      for (std::uint64_t i = 0; behind && i < count; ++i)
        if (program_.op(op).operands[i] == y_) program_.replace_operand(op, static_cast<int>(i), sum);
    }
    if (segment_.info().outgoing == y_) segment_.outgoing(sum);
    if (program_.used_elsewhere(y_))
      throw_error(
          ErrorCode::unsupported, "segment '", segment_.info().name.view(),
          "' carries what one of the adapted weights makes for all behind it, which would read it without "
          "the adapter; leave that weight out of targets");
  }

  const Segment& segment_;
  ProgramRef program_;
  Id op_, x_ = none, weight_ = none, y_ = none, behind_ = none;
  const Adapters& adapters_;
  double in_dims_;
};

class Lora final : public Strategy {
 public:
  explicit Lora(const Options& options) : targets_(options.texts("targets")) {
    const std::int64_t rank = options.integer("rank");
    const double width = static_cast<double>(rank);
    adapters_ = {{"lora", rank},
                 options.number("alpha") / (options.flag("rslora") ? std::sqrt(width) : width),
                 options.number("dropout")};
  }

  void apply(Phase, ProgramRef program) override {
    Modules modules(program, targets_);
    const std::set<Id> before = parameters_of(program);
    int added = 0;
    for (const Segment& segment : program.segments())
      for (const Id op : segment.operations(FunctionKind::forward)) {
        const OpInfo info = program.op(op);
        if (info.kind.view() != adapted_op || !before.contains(info.operands[1])) continue;
        const std::vector<Module> chosen = modules.of(info.operands[1]);
        if (chosen.empty()) continue;
        AdaptedLinear(segment, op, adapters_).add(chosen);
        added += static_cast<int>(chosen.size() * static_cast<std::size_t>(segment.info().repeat));
      }
    modules.check_all_found();
    for (const Id id : before) {
      const ValueInfo info = program.value(id);
      program.set_parameter(id, true, info.decay, info.lr_scale);
    }
    log_line("trains ", added, " adapters of rank ", adapters_.rank.extent, "; all else is frozen");
  }

 private:
  static std::set<Id> parameters_of(ProgramRef program) {
    std::set<Id> all;
    for (const Segment& segment : program.segments())
      for (const Id value : segment.values())
        if (program.value(value).role == Role::parameter) all.insert(value);
    return all;
  }

  std::vector<std::string> targets_;
  Adapters adapters_{};
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(
    strategy, prun::Lora, "lora", "0.1.0", "Trains low-rank adapters of frozen weights (LoRA)",
    "phase=model; tune=changes; changes=targets, rank, alpha, dropout, rslora; also=peft,adapters",
    "targets | names | all-linear | | Weights that get an adapter, by their modules' names in the model's "
    "original library, such as q_proj, attn.c_proj; all-linear: all but the output table\n"
    "rank    | int   | 8     | 1..65536    | Rank of an adapter\n"
    "alpha   | float | 16    | 0..1000000  | Scale: an adapter's output is multiplied by alpha / rank\n"
    "dropout | float | 0     | 0..0.95     | Dropout probability of an adapter's input\n"
    "rslora  | bool  | false |             | Rank-stabilized LoRA: multiply by alpha / sqrt(rank) instead\n");
