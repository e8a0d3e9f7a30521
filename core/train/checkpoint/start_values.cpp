#include "train/checkpoint/start_values.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>

#include "base/floats.hpp"
#include "base/random.hpp"
#include "base/thread.hpp"
#include "execute/device_memory.hpp"
#include "execute/plan_memory.hpp"
#include "huggingface/adapter.hpp"
#include "huggingface/config.hpp"
#include "huggingface/weight_reader.hpp"
#include "program/passes.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"
#include "train/checkpoint/manifest.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- start values

namespace fs = std::filesystem;

// ------------------------------------------------------------------- the two kinds

class HuggingFaceStart final : public StartValues {
 public:
  HuggingFaceStart(const Program& program, ModelInterface& model, const fs::path& folder)
      : map_(program, model), directory_(folder), reader_(program, map_, directory_) {}

  bool has(Id parameter) const override { return map_.has(parameter); }
  void read(Id parameter, std::int64_t layer, std::int64_t first, std::span<float> to) const override {
    reader_.read(parameter, layer, first, to);
  }
  std::string digest() const override { return directory_.digest(); }
  std::string content(std::size_t threads) const override { return directory_.content(threads); }

 private:
  HuggingFaceMap map_;
  HuggingFaceDirectory directory_;
  HuggingFaceReader reader_;
};

class CheckpointStart final : public StartValues {
 public:
  CheckpointStart(const Program& program, const fs::path& folder)
      : program_(program), files_(find_checkpoint(folder)) {
    if (!files_.manifest().base.empty())
      throw_error(ErrorCode::unsupported, "cannot start from ", files_.folder().string(),
                  ": it has adapters without the weights that they change; start from what prun export makes "
                  "of it (merged, or with --adapter for model.adapter), or go on from it by run.resume");
    for (const Id parameter : program.parameters())
      for (std::int64_t layer = 0; layer < program.segment(program.value(parameter).segment).repeat; ++layer)
        if (has(parameter)) check(parameter, layer);
  }

  // Says whether the weights have a parameter: one that is there for some layers must be there for all.
  bool has(Id parameter) const override {
    if (program_.value(parameter).added_by.empty()) return true;
    const std::int64_t layers = program_.segment(program_.value(parameter).segment).repeat;
    for (std::int64_t layer = 0; layer < layers; ++layer)
      if (files_.tensors().contains(full_name(program_, parameter, layer))) return true;
    return false;
  }

  void read(Id parameter, std::int64_t layer, std::int64_t first, std::span<float> to) const override {
    const std::string name = weights_of(files_, full_name(program_, parameter, layer));
    const CheckpointFiles::Tensor& tensor = files_.tensor(name);
    TensorSlice wanted{name, tensor.type, whole_slice(tensor.shape)};
    wanted.slice.first = first;
    wanted.slice.count = static_cast<std::int64_t>(to.size());
    std::vector<std::byte> bytes(static_cast<std::size_t>(wanted.bytes()));
    files_.read(wanted, bytes);
    load_floats(tensor.type, bytes, to);
  }
  std::string digest() const override { return manifest_checksum(files_.manifest()); }
  // The manifest has checksums of the headers, which have those of all bytes; these are compared as bytes are
  // read.
  std::string content(std::size_t) const override { return digest(); }
  const Manifest& manifest() const { return files_.manifest(); }

 private:
  void check(Id parameter, std::int64_t layer) const {
    const std::string name = weights_of(files_, full_name(program_, parameter, layer));
    const CheckpointFiles::Tensor& tensor = files_.tensor(name);
    Extents shape;
    for (const Dim& dim : program_.value(parameter).tensor_dims()) shape.push_back(dim.extent);
    if (tensor.shape != shape || (!is_float(tensor.type) || tensor.type == DType::f64))
      throw_error(ErrorCode::bad_input, files_.folder().string(), ": tensor '", name, "' is ",
                  name_of(to_safetensors_type(tensor.type)), shape_text(tensor.shape),
                  ", parameters of the recipe's model start from F32", shape_text(shape), ", BF16 or F16");
  }

  const Program& program_;
  CheckpointFiles files_;
};

// ------------------------------------------------------------------- whether the model is the same

// Says whether a key of the model section describes the model; `seq` is a choice of the training run.
bool describes_model(std::string_view key) {
  return key.starts_with("model.") && key != "model.seq" && key != "model.init" && key != "model.adapter" &&
         key != "model.config";
}

bool is_same(const Recipe& recipe, const std::string& key, const std::string& text) {
  const recipe::Entry* const entry = recipe.find(key);
  return entry && entry->value == recipe::parse_value(entry->option.type, text);
}

// Checks the model: weights in another model than they were trained in compute something else, without any
// sign of it.
void check_model(const Recipe& recipe, const Settings& trained, const std::string& where) {
  const std::vector<std::string>& allowed = recipe.texts("run.allow_changed");
  const Settings now = settings_of(recipe);
  for (const auto& [key, text] : trained) {
    if (!describes_model(key) || std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    if (is_same(recipe, key, text)) continue;
    const auto mine = std::find_if(now.begin(), now.end(), [&](const auto& one) { return one.first == key; });
    throw_error(ErrorCode::bad_input, "cannot start from the weights of ", where, " with ", key,
                mine == now.end() ? std::string(" unset") : " = " + mine->second, ": they were trained with ",
                text,
                "; leave the key out to take theirs or, if that is meant, add --set run.allow_changed=", key);
  }
}

// Says whether a parameter begins by changing nothing: such a one may begin beside any weights.
bool changes_nothing(const Program& program, Id parameter) {
  const Id copied = program.value(parameter).copy_of, original = copied == none ? parameter : copied;
  const Value& value = program.value(original);
  const auto is = [&](Id other) {
    const Value& whole = program.value(other);
    return other == original ||
           (value.part && value.segment == whole.segment && value.part->tensor == whole.name);
  };
  const std::vector<LowRankChange>& changes = program.low_ranks();
  return std::any_of(changes.begin(), changes.end(), [&](const LowRankChange& change) {
    const Init& init = program.value(change.up).init;
    return (is(change.down) || is(change.up)) && init.kind == Init::Kind::constant && init.value == 0;
  });
}

void check_added(const Recipe& recipe, const Program& program, const StartValues& start,
                 const std::string& where) {
  for (const Id parameter : program.parameters())
    if (const Value& value = program.value(parameter);
        !start.has(parameter) && !may_be_new(recipe, value.added_by) && !changes_nothing(program, parameter))
      throw_error(ErrorCode::bad_input, where, " has nothing for parameter '",
                  program.segment(value.segment).name, ".", value.name, "'",
                  how_it_may_be_new(recipe, value.added_by));
}

std::unique_ptr<StartValues> open_from(const fs::path& where, const Recipe& recipe, const Program& program,
                                       PluginHost& plugins) {
  if (std::error_code ignored; fs::is_regular_file(where / config_name, ignored)) {
    Settings trained;
    for (const auto& [key, text] : plugins.model_options(recipe.section("model").plugin(), where))
      trained.emplace_back("model." + key, text);
    check_model(recipe, trained, where.string());
    const auto model = plugins.create<ModelInterface>("model", recipe.section("model"));
    auto start = std::make_unique<HuggingFaceStart>(program, *model, where);
    check_added(recipe, program, *start, where.string());
    return start;
  }
  auto start = std::make_unique<CheckpointStart>(program, where);
  check_model(recipe, start->manifest().recipe, where.string());
  check_added(recipe, program, *start, where.string());
  return start;
}

// Starts from adapters of PEFT's, and beside them from other weights.
class AdapterStart final : public StartValues {
 public:
  AdapterStart(const Program& program, const fs::path& folder, std::unique_ptr<StartValues> others)
      : map_(map_of(program, folder)),
        directory_(folder, adapter_weights_name),
        reader_(program, map_, directory_),
        others_(std::move(others)) {}

  bool has(Id parameter) const override {
    return map_.has(parameter) || (others_ && others_->has(parameter));
  }
  void read(Id parameter, std::int64_t layer, std::int64_t first, std::span<float> to) const override {
    if (map_.has(parameter))
      reader_.read(parameter, layer, first, to);
    else
      others_->read(parameter, layer, first, to);
  }
  std::string digest() const override { return directory_.digest() + (others_ ? others_->digest() : ""); }
  std::string content(std::size_t threads) const override { return others_ ? others_->content(threads) : ""; }

 private:
  // Maps the folder: its own description says more than the shapes of its tensors do.
  static HuggingFaceMap map_of(const Program& program, const fs::path& folder) {
    HuggingFaceMap map = adapter_map(program);
    check_adapter_config(program, folder);
    return map;
  }

  HuggingFaceMap map_;
  HuggingFaceDirectory directory_;
  HuggingFaceReader reader_;
  std::unique_ptr<StartValues> others_;
};

}  // namespace

bool may_be_new(const Recipe& recipe, const std::string& added_by) {
  const std::vector<std::string>& allowed = recipe.texts("run.allow_changed");
  return std::find(allowed.begin(), allowed.end(), added_by + ".plugin") != allowed.end();
}

std::string how_it_may_be_new(const Recipe& recipe, const std::string& added_by) {
  return detail::concat(", which strategy '", recipe.text(added_by + ".plugin"),
                        "' adds to the model; if it is to start from the seed, add --set run.allow_changed=",
                        added_by, ".plugin");
}

std::unique_ptr<StartValues> open_start_values(const Recipe& recipe, const Program& program,
                                               PluginHost& plugins) {
  const RecipeSection model = recipe.section("model");
  std::unique_ptr<StartValues> start;
  if (const fs::path where = model.text("init"); !where.empty())
    start = recipe::in_section(
        model, [&] { return open_from(where, recipe, program, plugins); }, "init");
  if (const fs::path adapter = model.text("adapter"); !adapter.empty())
    start = recipe::in_section(
        model, [&] { return std::make_unique<AdapterStart>(program, adapter, std::move(start)); }, "adapter");
  return start;
}

bool has_base(const Program& program) {
  const std::vector<Id> all = program.parameters();
  return std::any_of(all.begin(), all.end(), [&](Id id) { return program.value(id).in_base; });
}

std::unique_ptr<StartValues> open_base(const Recipe& recipe, const Program& program, PluginHost& plugins) {
  if (!has_base(program)) return nullptr;
  const RecipeSection model = recipe.section("model");
  return recipe::in_section(
      model, [&] { return open_from(model.text("init"), recipe, program, plugins); }, "init");
}

void check_base(const StartValues& base, const std::string& content, const Recipe& recipe,
                std::size_t threads) {
  if (base.content(threads) != content)
    throw_error(
        ErrorCode::bad_input, "cannot use the weights of ", recipe.text("model.init"),
        ": the checkpoint's adapters were trained with others; name these by --set model.init=FOLDER");
}

namespace {

// ------------------------------------------------------------------- weights

// Names elements of a parameter, and where this rank holds them: in the parameter, in its master copy, in
// what passes read in its place, or in several of these.
struct Filling {
  Id parameter = none;
  std::int64_t layer = 0;
  std::int64_t whole = 0, count = 0;
  std::vector<HeldRun> places;
  bool frozen = false;  // no update ever rounds it
};

// Cuts a run where multiples of `most` elements lie in the whole tensor, and calls add(piece) for each.
template <class Add>
void each_piece(const HeldRun& run, std::int64_t most, Add&& add) {
  for (std::int64_t at = 0; at < run.count;) {
    HeldRun part = run;
    part.offset += at * size_of(run.type);
    part.whole += at;
    part.count = std::min(most - part.whole % most, run.count - at);
    add(part);
    at += part.count;
  }
}

// Lists states of strategies that start as other numbers than zeros, which memory has.
void list_states(const Assembly& assembly, std::int64_t most, std::vector<Filling>& list) {
  const Program& program = assembly.program();
  assembly.each_kept_state([&](Id id, std::int32_t instance) {
    const Value& state = program.value(id);
    const bool zeros = state.init.kind == Init::Kind::constant && state.init.value == 0;
    if (zeros && state.starts_as == none) return;
    const Id numbers = state.starts_as != none ? state.starts_as : id;
    each_run(program, assembly.rank(), id, instance, {id, state.dtype, 0, 0, program.local_elements(id)},
             [&](const HeldRun& run) {
               each_piece(run, most, [&](const HeldRun& piece) {
                 const std::int64_t layer = assembly.plan().instances[instance].layer;
                 list.push_back({numbers, layer, piece.whole, piece.count, {piece}, false});
               });
             });
  });
}

// Returns the fillings: only what this rank holds is made, and that once. Runs are cut where multiples of
// `most` elements lie in the whole parameter, so that the pieces of both are the same.
std::vector<Filling> fillings(const Assembly& assembly, std::int64_t most) {
  std::vector<Filling> list;
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<HeldRun>> pieces;
    const auto add = [&](const HeldRun& run) {
      each_piece(run, most, [&](const HeldRun& part) { pieces[{part.whole, part.count}].push_back(part); });
    };
    const Program& program = assembly.program();
    const Instance& of = assembly.plan().instances[instance];
    for (const Kept kept : {Kept::parameter, Kept::master})
      each_held(program, assembly.rank(), id, instance, kept, add);
    for (std::int32_t updates = 1; updates <= of.delay; ++updates)
      each_run(program, assembly.rank(), id, instance, held_before(program, id, updates), add);
    const std::int64_t layer = of.layer;
    for (auto& [elements, places] : pieces)
      list.push_back(
          {id, layer, elements.first, elements.second, std::move(places), program.value(id).frozen});
  });
  list_states(assembly, most, list);
  return list;
}

// Calls draw(filling, numbers), which gives a filling's numbers.
using Draw = std::function<void(const Filling& filling, std::span<float> numbers)>;

Draw from_seed(const Assembly& assembly) {
  const auto seed = static_cast<std::uint64_t>(assembly.recipe().integer("run.seed"));
  return [&assembly, seed](const Filling& f, std::span<float> numbers) {
    const Init& init = assembly.program().value(f.parameter).init;
    const std::uint64_t stream = stream_id(full_name(assembly.program(), f.parameter, f.layer));
    if (init.kind == Init::Kind::normal)
      RandomStream(seed, stream).fill_normal(numbers, static_cast<std::uint64_t>(f.whole), 0.0, init.value);
    else
      std::fill(numbers.begin(), numbers.end(), static_cast<float>(init.value));
  };
}

// Holds what a thread needs to fill parameters: it draws, converts and copies one piece at a time.
class Filler {
 public:
  // Takes the number of elements of a piece, and of the bytes that they are converted to.
  Filler(DeviceInterface& device, std::int64_t elements, std::int64_t converted_bytes)
      : numbers_(device, elements * size_of(DType::f32)), converted_(device, converted_bytes) {}

  void fill(const Filling& f, const Draw& draw, const PlanMemory& memory) {
    const std::span<float> numbers(reinterpret_cast<float*>(numbers_.data()),
                                   static_cast<std::size_t>(f.count));
    draw(f, numbers);
    for (const HeldRun& run : f.places)
      memory.write(run.value, run.instance, run.offset, as(run.type, numbers, f.frozen));
  }

 private:
  // Numbers are drawn in fp32 whatever the precision, so that fp64, fp32 and bf16 runs start alike. What
  // is trained is rounded as updates round it.
  std::span<const std::byte> as(DType type, std::span<const float> numbers, bool frozen) {
    if (type == DType::f32) return std::as_bytes(numbers);
    auto* const to = static_cast<std::byte*>(converted_.data());
    (frozen ? store_nearest : store_floats)(type, numbers, to);
    return {to, numbers.size() * static_cast<std::size_t>(size_of(type))};
  }

  Pinned numbers_, converted_;
};

// Fills all parameters, or those that are chosen.
void fill(const Assembly& assembly, const PlanMemory& memory, const StartValues* start,
          const std::set<Id>* chosen) {
  // A piece stays in a core's cache; for a copy to a device it is long enough to be worth its start, and from
  // a file it is as long as what has a checksum.
  const DeviceInfo& info = assembly.device_info();
  const std::int64_t most = start ? 1 << 20 : info.host_memory ? 1 << 16 : 1 << 18;
  std::vector<Filling> list = fillings(assembly, most);
  if (chosen)
    std::erase_if(list, [&](const Filling& filling) { return !chosen->contains(filling.parameter); });
  std::int64_t elements = 0, converted_bytes = 0;
  for (const Filling& filling : list) {
    elements = std::max(elements, filling.count);
    for (const HeldRun& run : filling.places)
      if (run.type != DType::f32) converted_bytes = std::max(converted_bytes, run.count * size_of(run.type));
  }
  const Draw seed = from_seed(assembly);
  const Draw draw = [&](const Filling& f, std::span<float> to) {
    const bool given = start && assembly.program().value(f.parameter).role == Role::parameter;
    given && start->has(f.parameter) ? start->read(f.parameter, f.layer, f.whole, to) : seed(f, to);
  };
  const std::size_t threads = host_threads(info, assembly.mesh().world());
  std::deque<Filler> fillers;
  for (std::size_t t = 0; t < threads; ++t)
    fillers.emplace_back(*assembly.devices().front(), elements, converted_bytes);
  share_out(threads, list.size(),
            [&](std::size_t t, std::size_t i) { fillers[t].fill(list[i], draw, memory); });
}

}  // namespace

void initialize(const Assembly& assembly, const PlanMemory& memory, const StartValues* start) {
  fill(assembly, memory, start, nullptr);
}

void initialize_new(const Assembly& assembly, const PlanMemory& memory, const std::set<Id>& parameters) {
  if (!parameters.empty()) fill(assembly, memory, nullptr, &parameters);
}

void initialize_base(const Assembly& assembly, const PlanMemory& memory, const StartValues& base) {
  std::set<Id> parameters;
  for (const Id id : assembly.program().parameters())
    if (assembly.program().value(id).in_base) parameters.insert(id);
  fill(assembly, memory, &base, &parameters);
}

}  // namespace prun
