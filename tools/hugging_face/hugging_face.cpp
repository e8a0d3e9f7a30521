#include "hugging_face/hugging_face.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/durable_file.hpp"
#include "base/floats.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "huggingface/adapter.hpp"
#include "huggingface/config.hpp"
#include "huggingface/weight_reader.hpp"
#include "plugin/traits.hpp"
#include "program/passes.hpp"
#include "program/step_program.hpp"
#include "recipe/schema.hpp"
#include "train/assemble/model_program.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"
#include "train/checkpoint/manifest.hpp"
#include "train/checkpoint/start_values.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- beside weights
// Copies files that transformers reads beside weights and no checkpoint has: the tokenizer's, its template,
// and how a model is to generate.

// Copies them into `to` from where the run had them: its data's tokenizer, and the folder that it began with.
// Returns a line that says what was copied, or why nothing was; it is empty where the run names no such
// folder.
std::string copy_beside_weights(const Settings& run, PluginHost& plugins, const std::filesystem::path& to);

namespace fs = std::filesystem;

constexpr std::size_t most_bytes = std::size_t{1} << 30;
constexpr std::array file_names = {"tokenizer.json",
                                   "tokenizer_config.json",
                                   "special_tokens_map.json",
                                   "added_tokens.json",
                                   "chat_template.jinja",
                                   "tokenizer.model",
                                   "vocab.json",
                                   "merges.txt",
                                   "vocab.txt",
                                   "generation_config.json"};

std::string text_setting(const Settings& run, std::string_view key) {
  const auto found = std::find_if(run.begin(), run.end(), [&](const auto& one) { return one.first == key; });
  if (found == run.end()) return {};
  const auto value = recipe::parse_value(recipe::OptionType::string, found->second);
  return value ? std::get<std::string>(*value) : std::string();
}

// Returns the tokenizer that the data plugin's trait names; nothing where that plugin is not here any more.
std::string tokenizer_of_data(const Settings& run, PluginHost& plugins) {
  const std::string plugin = text_setting(run, "data.plugin");
  if (plugin.empty()) return {};
  try {
    const std::string key(trait_of(plugins.note("data", plugin), "tokenizer"));
    return key.empty() ? std::string() : text_setting(run, "data." + key);
  } catch (const Error&) {
    return {};
  }
}

// The first of these folders that has a file gives it.
std::vector<fs::path> folders_of(const Settings& run, PluginHost& plugins) {
  std::vector<fs::path> folders;
  if (const fs::path tokenizer = tokenizer_of_data(run, plugins); !tokenizer.empty())
    folders.push_back(fs::is_directory(tokenizer) ? tokenizer : tokenizer.parent_path());
  if (const fs::path init = text_setting(run, "model.init"); !init.empty()) folders.push_back(init);
  return folders;
}

std::string copy_beside_weights(const Settings& run, PluginHost& plugins, const fs::path& to) {
  const std::vector<fs::path> folders = folders_of(run, plugins);
  std::string copied, searched;
  for (const fs::path& folder : folders)
    if (searched.find(folder.string()) == std::string::npos)
      searched += (searched.empty() ? "" : ", ") + folder.string();
  for (const char* name : file_names)
    for (const fs::path& folder : folders) {
      if (!fs::is_regular_file(folder / name)) continue;
      replace_text_file(to / name, whole_file(folder / name, most_bytes));
      copied += (copied.empty() ? "" : ", ") + std::string(name);
      break;
    }
  if (folders.empty()) return {};
  return copied.empty() ? "no tokenizer beside it: there is none in " + searched + "\n"
                        : "copied " + copied + " of " + searched + "\n";
}

// ------------------------------------------------------------------- exported weights
// Reads the numbers that an export has of a checkpoint's parameters: as they are, or with adapters merged in.

class ExportedWeights {
 public:
  // `base` has the parameters that the files lack; it is null where they have all. `state` says which weights
  // of the adapters to use.
  ExportedWeights(const Program& program, const CheckpointFiles& files, const StartValues* base,
                  std::string state)
      : program_(program), files_(files), base_(base), state_(std::move(state)) {}

  // Returns a box of a parameter of a layer; `source` is the tensor of the files that has its numbers. A
  // tensor that adapters change, or that lies elsewhere, is read whole and kept until another is read.
  std::vector<float> read(Id parameter, std::int64_t layer, const std::string& source, const Slice& box);

 private:
  bool is_changed(Id parameter) const;
  void keep(Id parameter, std::int64_t layer, const std::string& source);
  std::vector<float> whole(Id parameter, std::int64_t layer, const std::string& source) const;
  std::vector<float> trained(Id parameter, std::int64_t layer) const;
  void add(const LowRankChange& change, std::int64_t layer);

  const Program& program_;
  const CheckpointFiles& files_;
  const StartValues* const base_;
  const std::string state_;
  Id kept_ = none;
  std::int64_t kept_layer_ = 0;
  std::vector<float> numbers_;  // those of the tensor that is kept
};

Extents extents_of(const Value& value) {
  Extents shape;
  for (const Dim& dim : value.dims) shape.push_back(dim.extent);
  return shape;
}

std::vector<float> floats_of(const CheckpointFiles& files, const TensorSlice& slice) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(slice.bytes()));
  files.read(slice, bytes);
  std::vector<float> numbers(static_cast<std::size_t>(slice.slice.count));
  load_floats(slice.type, bytes, numbers);
  return numbers;
}

std::vector<float> ExportedWeights::read(Id parameter, std::int64_t layer, const std::string& source,
                                         const Slice& box) {
  if (!program_.value(parameter).in_base && !is_changed(parameter)) {
    const CheckpointFiles::Tensor& kept = files_.tensor(source);
    return floats_of(files_, {source, kept.type, {kept.shape, box.start, box.extent, 0, box.count}});
  }
  if (kept_ != parameter || kept_layer_ != layer) keep(parameter, layer, source);
  const Extents shape = extents_of(program_.value(parameter));
  std::vector<float> numbers;
  numbers.reserve(static_cast<std::size_t>(box.count));
  each_run(box.extent, 0, box.count, [&](const Extents& index, std::int64_t count) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + box.start[d] + index[d];
    const auto from = numbers_.begin() + at;
    numbers.insert(numbers.end(), from, from + count);
  });
  return numbers;
}

bool ExportedWeights::is_changed(Id parameter) const {
  const std::vector<LowRankChange>& changes = program_.low_ranks();
  return std::any_of(changes.begin(), changes.end(),
                     [&](const LowRankChange& change) { return change.weight == parameter; });
}

void ExportedWeights::keep(Id parameter, std::int64_t layer, const std::string& source) {
  numbers_ = whole(parameter, layer, source);
  kept_ = parameter;
  kept_layer_ = layer;
  for (const LowRankChange& change : program_.low_ranks())
    if (change.weight == parameter) add(change, layer);
}

std::vector<float> ExportedWeights::whole(Id parameter, std::int64_t layer, const std::string& source) const {
  if (program_.value(parameter).in_base) {
    std::vector<float> numbers(static_cast<std::size_t>(program_.value(parameter).elements()));
    base_->read(parameter, layer, 0, numbers);
    return numbers;
  }
  const CheckpointFiles::Tensor& kept = files_.tensor(source);
  return floats_of(files_, {source, kept.type, whole_slice(kept.shape)});
}

std::vector<float> ExportedWeights::trained(Id parameter, std::int64_t layer) const {
  return whole(parameter, layer, weights_of(files_, full_name(program_, parameter, layer), state_));
}

// Computes numbers += factor * up * down, of which `up` may have a stretch of one dimension only.
void ExportedWeights::add(const LowRankChange& change, std::int64_t layer) {
  const Extents shape = extents_of(program_.value(change.weight));
  const std::size_t out = shape.size() - change.in_dims;
  const std::vector<float> down = trained(change.down, layer), up = trained(change.up, layer);
  const std::int64_t rank = program_.value(change.down).dims.front().extent,
                     width = static_cast<std::int64_t>(down.size()) / rank;
  Extents rows = extents_of(program_.value(change.up));
  rows.pop_back();
  for (std::int64_t r = 0; r < elements_of(rows); ++r) {
    std::int64_t at = 0, left = r, stride = 1;  // are of the row in the weight, the last dimension first
    for (std::size_t d = out; d-- > 0; left /= rows[d], stride *= shape[d])
      at += (left % rows[d] + (d == change.part ? change.begin : 0)) * stride;
    std::vector<double> sums(static_cast<std::size_t>(width), 0);
    for (std::int64_t k = 0; k < rank; ++k) {
      const double by = change.factor * static_cast<double>(up[static_cast<std::size_t>(r * rank + k)]);
      const float* const from = down.data() + k * width;
      for (std::int64_t i = 0; i < width; ++i)
        sums[static_cast<std::size_t>(i)] += by * static_cast<double>(from[i]);
    }
    float* const to = numbers_.data() + at * width;
    for (std::int64_t i = 0; i < width; ++i)
      to[i] = static_cast<float>(static_cast<double>(to[i]) + sums[static_cast<std::size_t>(i)]);
  }
}

// ------------------------------------------------------------------- hugging face

namespace fs = std::filesystem;
constexpr std::int64_t piece_elements = 1 << 22;  // limits elements that are in memory at a time

// Says whether a key describes the checkpoint's model, except for where it came from.
bool says_model(const std::string& key) {
  return (key.starts_with("model.") && key != "model.config" && key != "model.init" &&
          key != "model.adapter") ||
         key == "plugins.ops";
}

// Adds the strategies that change the model, which are numbered anew.
void add_model_strategies(const Settings& recipe, PluginHost& plugins, std::vector<std::string>& sets) {
  int number = 0;
  for (const auto& [key, value] : recipe) {
    if (!key.starts_with("strategy.") || !key.ends_with(".plugin")) continue;
    const std::string section = key.substr(0, key.size() - std::string_view("plugin").size());
    const auto named = recipe::parse_value(recipe::OptionType::string, value);
    if (!named || !works_in(Phase::model, plugins.note("strategy", std::get<std::string>(*named)))) continue;
    const std::string fresh = "strategy." + std::to_string(number++) + ".";
    sets.push_back(detail::concat(fresh, "plugin=", value));
    for (const auto& [other, text] : recipe)
      if (other.starts_with(section) && other != key)
        sets.push_back(detail::concat(fresh, other.substr(section.size()), "=", text));
  }
}

// Calls body(parameter, layer) for all layers of all parameters of a model.
template <class Body>
void each_parameter(const Program& program, Body&& body) {
  for (const Id parameter : program.parameters())
    for (std::int64_t layer = 0; layer < program.segment(program.value(parameter).segment).repeat; ++layer)
      body(parameter, layer);
}

Extents shape_of(const Value& value) {
  Extents shape;
  for (const Dim& dim : value.dims) shape.push_back(dim.extent);
  return shape;
}

std::string size_of_all(std::int64_t bytes) { return size_text(bytes); }

// ------------------------------------------------------------------- in

struct Imported {
  Id parameter = none;
  std::int64_t layer = 0;
};

// Returns the bytes of a whole parameter, as fp32 or bf16.
std::vector<std::byte> bytes_of(const HuggingFaceReader& reader, const Imported& from,
                                const TensorSlice& slice) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(slice.bytes()));
  std::vector<float> numbers;
  for (std::int64_t at = 0; at < slice.slice.count; at += piece_elements) {
    numbers.resize(static_cast<std::size_t>(std::min(piece_elements, slice.slice.count - at)));
    reader.read(from.parameter, from.layer, at, numbers);
    store_nearest(slice.type, numbers, bytes.data() + at * prun::size_of(slice.type));
  }
  return bytes;
}

Manifest manifest_of(const Recipe& recipe, const PluginHost& plugins) {
  Manifest manifest;
  manifest.run = fresh_run();
  manifest.save = 1;
  for (const auto& setting : settings_of(recipe))
    if (says_model(setting.first)) manifest.recipe.push_back(setting);
  manifest.plugins = plugin_record(plugins);
  return manifest;
}

// ------------------------------------------------------------------- out

// Describes a tensor of an exported directory, and the boxes of a checkpoint's tensor that it is made of, in
// their order.
struct Exported {
  SafetensorsSpec spec;
  std::vector<HuggingFacePiece> pieces;
  std::string source;
  Id parameter = none;
  std::int64_t layer = 0;

  std::int64_t bytes() const { return elements_of(spec.shape) * prun::size_of(spec.type); }
};

// Returns the type that the checkpoint has, or that a parameter which it lacks would have.
DType kept_type(const CheckpointFiles& files, const std::string& name) {
  if (const auto found = files.tensors().find(name); found != files.tensors().end())
    return found->second.type;
  for (const auto& [key, value] : files.manifest().recipe)
    for (const DType half : {DType::bf16, DType::f16})
      if (key == "precision.compute" && value.find(name_of(half)) != std::string::npos) return half;
  return DType::f32;
}

// Pieces of one tensor there follow each other, the first of them at its first row.
void add_pieces(std::vector<Exported>& list, const HuggingFaceMap& map, const Exported& like) {
  for (const HuggingFacePiece& piece : map.pieces(like.parameter)) {
    const std::string tensor = piece.name_of(like.layer);
    if (piece.row == 0) {
      Exported& one = list.emplace_back(like);
      one.spec.name = tensor;
      one.spec.shape = piece.shape;
    }
    std::find_if(list.rbegin(), list.rend(), [&](const Exported& one) {
      return one.spec.name == tensor;
    })->pieces.push_back(piece);
  }
}

std::vector<Exported> exported_tensors(const Program& program, const HuggingFaceMap& map,
                                       const CheckpointFiles& files, std::optional<DType> type,
                                       const std::string& state) {
  check_has(files, state);
  std::vector<Exported> list;
  each_parameter(program, [&](Id parameter, std::int64_t layer) {
    if (!map.has(parameter)) return;
    const std::string name = full_name(program, parameter, layer);
    if (program.value(parameter).in_base) {
      const DType wanted = type.value_or(kept_type(files, name));
      return add_pieces(list, map, {{"", wanted, {}}, {}, name, parameter, layer});
    }
    const CheckpointFiles::Tensor& kept = files.tensor(name);
    if (kept.shape != shape_of(program.value(parameter)))
      throw_error(ErrorCode::bad_input, files.folder().string(), ": tensor '", name, "' is ",
                  shape_text(kept.shape), ", the model makes it ",
                  shape_text(shape_of(program.value(parameter))));
    const DType wanted = type.value_or(size_of(kept.type) == 2 ? kept.type : DType::f32);
    const bool as_it_is = wanted == kept.type && state.empty();
    const std::string source = as_it_is ? name : weights_of(files, name, state);
    add_pieces(list, map, {{"", wanted, {}}, {}, source, parameter, layer});
  });
  return list;
}

// Reads rows of the dimension that varies slowest there, in their order there, as floats.
class BoxReader {
 public:
  BoxReader(ExportedWeights& weights, const Exported& tensor, const HuggingFacePiece& piece)
      : weights_(weights), tensor_(tensor), piece_(piece) {}

  std::vector<float> read(std::int64_t begin, std::int64_t end) {
    const std::size_t slowest = piece_.order.front();
    Slice box{{}, piece_.start, piece_.extent, 0, 0};
    box.start[slowest] += begin;
    box.extent[slowest] = end - begin;
    box.count = elements_of(box.extent);
    std::vector<float> here = weights_.read(tensor_.parameter, tensor_.layer, tensor_.source, box);
    return reordered(here, box.extent);
  }

 private:
  std::vector<float> reordered(std::vector<float>& here, const Extents& box) const {
    if (std::is_sorted(piece_.order.begin(), piece_.order.end())) return std::move(here);
    Extents there, strides(box.size(), 1);  // are of dimensions in their order there, in elements here
    for (std::size_t i = 0; i < box.size(); ++i) {
      there.push_back(box[piece_.order[i]]);
      for (std::size_t d = piece_.order[i] + 1; d < box.size(); ++d) strides[i] *= box[d];
    }
    std::vector<float> result;
    result.reserve(here.size());
    each_run(there, 0, static_cast<std::int64_t>(here.size()), [&](const Extents& index, std::int64_t count) {
      std::int64_t at = 0;
      for (std::size_t i = 0; i < index.size(); ++i) at += index[i] * strides[i];
      for (std::int64_t n = 0; n < count; ++n, at += strides.back())
        result.push_back(here[static_cast<std::size_t>(at)]);
    });
    return result;
  }

  ExportedWeights& weights_;
  const Exported& tensor_;
  const HuggingFacePiece& piece_;
};

void write_piece(SafetensorsWriter& writer, ExportedWeights& weights, const Exported& tensor,
                 const HuggingFacePiece& piece) {
  BoxReader reader(weights, tensor, piece);
  const std::int64_t rows = piece.extent[piece.order.front()], row = elements_of(piece.extent) / rows,
                     step = std::max<std::int64_t>(1, piece_elements / row);
  std::vector<std::byte> bytes;
  for (std::int64_t at = 0; at < rows; at += step) {
    const std::vector<float> numbers = reader.read(at, std::min(rows, at + step));
    bytes.resize(numbers.size() * static_cast<std::size_t>(prun::size_of(tensor.spec.type)));
    store_nearest(tensor.spec.type, numbers, bytes.data());
    writer.write(tensor.spec.name, bytes);
  }
}

void write_file(const fs::path& path, ExportedWeights& weights, std::span<const Exported> tensors) {
  std::vector<SafetensorsSpec> specs;
  std::map<std::string_view, const Exported*> by_name;
  for (const Exported& tensor : tensors) {
    specs.push_back(tensor.spec);
    by_name[tensor.spec.name] = &tensor;
  }
  SafetensorsWriter writer(path, std::move(specs));
  for (const SafetensorsSpec& spec : writer.order())
    for (const HuggingFacePiece& piece : by_name.at(spec.name)->pieces)
      write_piece(writer, weights, *by_name.at(spec.name), piece);
  writer.finish();
}

// Puts as many tensors in a file as fit, in order; a tensor that is larger has a file of its own.
std::vector<std::span<const Exported>> in_files(std::span<const Exported> tensors, std::int64_t most) {
  std::vector<std::span<const Exported>> files;
  std::size_t first = 0;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i > first && bytes + tensors[i].bytes() > most) {
      files.push_back(tensors.subspan(first, i - first));
      first = i;
      bytes = 0;
    }
    bytes += tensors[i].bytes();
  }
  files.push_back(tensors.subspan(first));
  return files;
}

std::string file_name(std::size_t number, std::size_t count) {
  if (count == 1) return weights_name;
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", number + 1, count);
  return name;
}

std::string index_text(const std::vector<std::span<const Exported>>& files, std::int64_t bytes) {
  JsonWriter json;
  json.begin_object().name("metadata").begin_object().member("total_size", bytes).end_object();
  json.name("weight_map").begin_object();
  for (std::size_t i = 0; i < files.size(); ++i)
    for (const Exported& tensor : files[i]) json.member(tensor.spec.name, file_name(i, files.size()));
  return json.end_object().end_object().take() + "\n";
}

void write_config(const fs::path& path, const ModelProgram& model, std::span<const Exported> tensors) {
  ConfigValues values = written_config(*model.model, model.context);
  const auto half = std::find_if(tensors.begin(), tensors.end(),
                                 [](const Exported& tensor) { return size_of(tensor.spec.type) == 2; });
  std::string type = "float32";
  if (half != tensors.end()) type = half->spec.type == DType::f16 ? "float16" : "bfloat16";
  values.insert(values.begin(), {"torch_dtype", type});
  replace_text_file(path, config_text(values));
}

// The options of its config.json are read by themselves first: errors could show no lines of a recipe.
Recipe recipe_of_directory(PluginHost& plugins, const Conversion& how) {
  plugins.model_options({}, how.from);
  std::vector<std::string> sets = {"model.seq=1", "model.config=" + how.from.string()};
  sets.insert(sets.end(), how.sets.begin(), how.sets.end());
  return model_recipe(plugins, sets);
}

ModelProgram model_of_directory(const Recipe& recipe, PluginHost& plugins, const Conversion& how) {
  try {
    return write_model(recipe, plugins);
  } catch (const Error& error) {
    throw_error(error.code(), (how.from / config_name).string(), ": ", error.what());
  }
}

}  // namespace

std::string import_directory(PluginHost& plugins, const Conversion& how) {
  const Recipe recipe = recipe_of_directory(plugins, how);
  const ModelProgram model = model_of_directory(recipe, plugins, how);
  const HuggingFaceMap map(*model.program, *model.model);
  const HuggingFaceDirectory directory(how.from);
  const HuggingFaceReader reader(*model.program, map, directory);
  std::vector<Imported> from;
  std::vector<TensorSlice> slices;
  std::int64_t bytes = 0;
  each_parameter(*model.program, [&](Id parameter, std::int64_t layer) {
    from.push_back({parameter, layer});
    slices.push_back({full_name(*model.program, parameter, layer),
                      how.type.value_or(reader.type_of(parameter, layer)),
                      whole_slice(shape_of(model.program->value(parameter)))});
    bytes += slices.back().bytes();
  });
  DurableFolder folder(how.to);
  Manifest manifest = manifest_of(recipe, plugins);
  const fs::path file = folder.staging() / rank_file_name(0);
  write_slices(file, slices, [&](std::size_t number, const WriteBytes& write) {
    write(bytes_of(reader, from[number], slices[number]));
  });
  manifest.files.push_back(file_record(file));
  replace_text_file(folder.staging() / manifest_name, to_text(manifest));
  folder.commit();
  std::string text = detail::concat("wrote ", how.to.string(), ": ", slices.size(), " tensors, ",
                                    size_of_all(bytes), "; a recipe starts from it with\n\n[model]\n");
  for (const auto& [key, value] : manifest.recipe)
    if (key.starts_with("model.") && key != "model.seq") text += key.substr(6) + " = " + value + "\n";
  return text + "init = " + recipe::to_toml(how.to.string()) + "\n";
}

namespace {

// Holds a checkpoint, its model as strategies change it, and the weights that it leaves to `model.init`.
struct ExportedCheckpoint {
  CheckpointFiles files;
  Recipe recipe;
  ModelProgram model;
  std::unique_ptr<StartValues> base;

  ExportedCheckpoint(PluginHost& plugins, const Conversion& how)
      : files(find_checkpoint(how.from)),
        recipe(recipe_of(plugins, how, files.manifest())),
        model(write_model(recipe, plugins)) {
    if (files.manifest().base.empty()) return;
    leave_to_base(*model.program);
    base = open_base(recipe, *model.program, plugins);
    if (base)
      check_base(*base, files.manifest().base, recipe, std::max(1u, std::thread::hardware_concurrency()));
  }

  std::string base_folder() const { return recipe.text("model.init"); }

 private:
  static Recipe recipe_of(PluginHost& plugins, const Conversion& how, const Manifest& manifest) {
    std::vector<std::string> sets;
    for (const auto& [key, value] : manifest.recipe)
      if (says_model(key) || (key == "model.init" && !manifest.base.empty()))
        sets.push_back(detail::concat(key, "=", value));
    add_model_strategies(manifest.recipe, plugins, sets);
    sets.insert(sets.end(), how.sets.begin(), how.sets.end());
    return model_recipe(plugins, sets);
  }
};

std::string what_was_written(const Conversion& how, std::span<const Exported> tensors, std::size_t files,
                             const CheckpointFiles& from) {
  std::int64_t bytes = 0;
  for (const Exported& tensor : tensors) bytes += tensor.bytes();
  return detail::concat("wrote ", how.to.string(), ": ", tensors.size(), " tensors, ", size_of_all(bytes),
                        " in ", files, files == 1 ? " file" : " files", ", of ", from.folder().string(),
                        "\n");
}

}  // namespace

std::string export_checkpoint(PluginHost& plugins, const Conversion& how) {
  const ExportedCheckpoint from(plugins, how);
  const HuggingFaceMap map(*from.model.program, *from.model.model);
  const std::vector<Exported> tensors =
      exported_tensors(*from.model.program, map, from.files, how.type, how.state);
  std::int64_t bytes = 0;
  for (const Exported& tensor : tensors) bytes += tensor.bytes();
  ExportedWeights weights(*from.model.program, from.files, from.base.get(), how.state);
  const std::vector<std::span<const Exported>> shares = in_files(tensors, how.file_bytes);
  DurableFolder folder(how.to);
  for (std::size_t i = 0; i < shares.size(); ++i)
    write_file(folder.staging() / file_name(i, shares.size()), weights, shares[i]);
  if (shares.size() > 1) replace_text_file(folder.staging() / weights_index_name, index_text(shares, bytes));
  write_config(folder.staging() / config_name, from.model, tensors);
  const std::string beside = copy_beside_weights(from.files.manifest().recipe, plugins, folder.staging());
  folder.commit();
  return what_was_written(how, tensors, shares.size(), from.files) + beside;
}

std::string export_adapter(PluginHost& plugins, const Conversion& how) {
  const ExportedCheckpoint from(plugins, how);
  const HuggingFaceMap map = adapter_map(*from.model.program);
  const std::vector<Exported> tensors =
      exported_tensors(*from.model.program, map, from.files, how.type.value_or(DType::f32), how.state);
  ExportedWeights weights(*from.model.program, from.files, nullptr, how.state);
  DurableFolder folder(how.to);
  write_file(folder.staging() / adapter_weights_name, weights, tensors);
  replace_text_file(folder.staging() / adapter_config_name,
                    adapter_config_text(*from.model.program, from.base_folder()));
  folder.commit();
  return what_was_written(how, tensors, 1, from.files);
}

}  // namespace prun
