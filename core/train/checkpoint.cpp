#include "train/checkpoint.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/durable_file.hpp"
#include "base/sha256.hpp"
#include "prun/split_master.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

struct Item {
  SafetensorsSpec spec;
  Id value;
  std::int32_t instance;
  // Of the low halves of master copies: the value in bf16 that is the rounding. The file has whole floats.
  Id rounded = none;
};

// What outlives a step on this rank: parameters, or its parts of them, and optimizer state.
bool lasts(const Program& program, Id id) {
  const Value& value = program.value(id);
  const Bucket* bucket =
      value.bucket < 0 ? nullptr : &program.buckets()[static_cast<std::size_t>(value.bucket)];
  if (value.role == Role::state) return !bucket || id != bucket->own_gradients;
  return value.role == Role::parameter && (!bucket || !bucket->kept.parameters);
}

// What the low halves of master copies complete.
Id rounded_of(const Program& program, Id low) {
  const Value& value = program.value(low);
  if (value.bucket >= 0) return program.buckets()[static_cast<std::size_t>(value.bucket)].own_parameters;
  for (Id id : program.segment(value.segment).values)
    if (program.value(id).master == low) return id;
  throw_error(ErrorCode::internal, "'", value.name, "' is no parameter's master copy");
}

std::vector<Item> items(const Assembly& assembly) {
  const Program& program = assembly.program();
  std::vector<Item> list;
  for (std::size_t i = 0; i < assembly.plan().instances.size(); ++i) {
    if (assembly.plan().instances[i].receive_stub) continue;
    for (Id id : program.segment(assembly.plan().instances[i].segment).values) {
      const auto instance = static_cast<std::int32_t>(i);
      if (!lasts(program, id)) continue;
      SafetensorsSpec spec{assembly.full_name(id, instance), program.value(id).dtype, {}};
      for (const Dim& dim : program.local_dims(id)) spec.shape.push_back(dim.extent);
      const bool half = spec.type == DType::u16;
      if (half) spec.type = DType::f32;
      list.push_back({std::move(spec), id, instance, half ? rounded_of(program, id) : none});
    }
  }
  return list;
}

// Whether every rank holds the same.
bool all_alike(const Program& program) {
  if (program.pipeline()) return false;
  for (Id id = 0; id < program.value_count(); ++id)
    for (std::size_t axis = 0; axis < program.mesh().size(); ++axis)
      if (lasts(program, id) && program.value(id).on(axis).is_sharded()) return false;
  return true;
}

// "dp=2 tp=2 state in parts over dp": what must be the same for ranks to go on from their own files.
std::string layout_text(const Program& program) {
  if (all_alike(program)) return "alike";
  std::string text;
  for (const Axis& axis : program.mesh().axes()) text += axis.name + "=" + std::to_string(axis.extent) + " ";
  if (const auto& pipeline = program.pipeline())
    text += pipeline->schedule + " in " + std::to_string(pipeline->chunks) + " chunks over " +
            program.mesh().axes()[pipeline->axis].name + " ";
  for (const Program::Parts& parts : program.parts())
    text += (parts.kept.parameters ? "state and parameters in parts over " : "state in parts over ") +
            program.mesh().axes()[parts.axis].name;
  return text;
}

// "0+4/8,0+16/16": where the rank's part of each dimension begins, its extent and that of the whole.
std::string part_text(const Program& program, Id id, std::int64_t rank) {
  const std::vector<Dim>& whole = program.value(id).dims;
  const std::vector<Dim> part = program.local_dims(id);
  const std::vector<std::int64_t> starts = program.starts(id, rank);
  std::string text;
  for (std::size_t d = 0; d < whole.size(); ++d)
    text += detail::concat(d > 0 ? "," : "", starts[d], "+", part[d].extent, "/", whole[d].extent);
  return text;
}

// Parts of the same shape may be other parts of the whole, or packed in another order.
std::string parts_digest(const Assembly& assembly, const std::vector<Item>& list) {
  const Program& program = assembly.program();
  std::string text;
  for (const Item& item : list) {
    text += item.spec.name + " " + part_text(program, item.value, assembly.rank()) + "\n";
    const std::int32_t number = program.value(item.value).bucket;
    if (number < 0 || program.value(item.value).role == Role::parameter) continue;
    const Bucket& bucket = program.buckets()[static_cast<std::size_t>(number)];
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i)
      text += detail::concat(" ", program.value(bucket.parameters[i]).name, " ",
                             part_text(program, bucket.parameters[i], assembly.rank()), " at ",
                             bucket.offsets[i], "\n");
  }
  return sha256_hex(text);
}

std::string mesh_text(const Mesh& mesh) {
  std::string text;
  for (const Axis& axis : mesh.axes())
    text += (text.empty() ? "" : " ") + axis.name + "=" + std::to_string(axis.extent);
  return text;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::int64_t extent : shape) text += (text.size() > 1 ? "," : "") + std::to_string(extent);
  return text + "]";
}

// Whether a tensor of the file is what the recipe makes of it.
void check_item(const SafetensorsFile& file, const Item& item) {
  const SafetensorsEntry* entry = file.index().find(item.spec.name);
  if (!entry)
    throw_error(ErrorCode::bad_input, file.path().string(), " has no tensor '", item.spec.name,
                "'; the recipe's model, optimizer or precision differs from the saved run's");
  if (to_dtype(entry->type) != item.spec.type || entry->shape != item.spec.shape)
    throw_error(ErrorCode::bad_input, file.path().string(), ": tensor '", item.spec.name, "' is ",
                name_of(entry->type), shape_text(entry->shape), ", the recipe makes it ",
                name_of(to_safetensors_type(item.spec.type)), shape_text(item.spec.shape));
}

template <class T>
void check_finite(const SafetensorsFile& file, const Item& item, std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    T number;
    std::memcpy(&number, bytes.data() + i * sizeof(T), sizeof(T));
    if (!std::isfinite(static_cast<double>(number)))
      throw_error(ErrorCode::bad_input, file.path().string(), ": tensor '", item.spec.name, "' holds ",
                  static_cast<double>(number), " at element ", i,
                  ", and did when it was saved; go on from an earlier checkpoint");
  }
}

using Halves = std::vector<std::uint16_t>;

Halves read_halves(const PlanMemory& memory, Id value, std::int32_t instance, std::size_t count) {
  Halves halves(count);
  memory.read(value, instance, 0, std::as_writable_bytes(std::span(halves)));
  return halves;
}

std::vector<std::byte> join(const Item& item, const PlanMemory& memory, std::size_t bytes) {
  std::vector<std::byte> joined(bytes);
  const std::size_t count = bytes / sizeof(float);
  const Halves rounded = read_halves(memory, item.rounded, item.instance, count),
               low = read_halves(memory, item.value, item.instance, count);
  for (std::size_t i = 0; i < count; ++i) {
    const float number = joined_halves(rounded[i], low[i]);
    std::memcpy(joined.data() + i * sizeof number, &number, sizeof number);
  }
  return joined;
}

// The other half has been read.
void split(const SafetensorsFile& file, const Item& item, const PlanMemory& memory,
           std::span<const std::byte> bytes) {
  const std::size_t count = bytes.size() / sizeof(float);
  const Halves rounded = read_halves(memory, item.rounded, item.instance, count);
  Halves low(count);
  for (std::size_t i = 0; i < count; ++i) {
    float number;
    std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
    low[i] = low_half(number);
    if (rounded[i] != rounded_half(number))
      throw_error(ErrorCode::bad_input, file.path().string(), ": tensor '", item.spec.name,
                  "' does not round to its parameters at element ", i,
                  ", as it must for precision.master = \"split\"; take one step with \"fp32\" before");
  }
  memory.write(item.value, item.instance, 0, std::as_bytes(std::span(low)));
}

void read_item(const SafetensorsFile& file, const Item& item, const PlanMemory& memory) {
  const SafetensorsEntry& entry = file.entry(item.spec.name);
  file.check(entry);
  const std::span<const std::byte> bytes = file.bytes(entry);
  if (item.spec.type == DType::f64) check_finite<double>(file, item, bytes);
  if (item.spec.type == DType::f32) check_finite<float>(file, item, bytes);
  if (item.spec.type == DType::bf16) check_finite<bf16>(file, item, bytes);
  if (item.rounded != none)
    split(file, item, memory, bytes);
  else
    memory.write(item.value, item.instance, 0, bytes);
}

void write_file(const Assembly& assembly, const PlanMemory& memory, const Progress& progress,
                const SavePlace& place, const fs::path& folder) {
  const std::vector<Item> list = items(assembly);
  std::vector<SafetensorsSpec> specs;
  for (const Item& item : list) specs.push_back(item.spec);
  SafetensorsMetadata metadata = to_metadata({place.run, place.save, progress, assembly.rank(),
                                              layout_text(assembly.program()), parts_digest(assembly, list)});
  metadata.emplace("prun.mesh", mesh_text(assembly.mesh()));
  metadata.emplace("prun.recipe", assembly.recipe().resolved_toml());
  SafetensorsWriter writer(folder / rank_file_name(assembly.rank()), specs, std::move(metadata),
                           Checksums::written);
  std::vector<std::byte> bytes;
  for (const SafetensorsSpec& spec : writer.order()) {
    const auto item =
        std::find_if(list.begin(), list.end(), [&](const Item& i) { return i.spec.name == spec.name; });
    bytes.resize(
        static_cast<std::size_t>(assembly.program().local_elements(item->value) * size_of(spec.type)));
    if (item->rounded != none)
      bytes = join(*item, memory, bytes.size());
    else
      memory.read(item->value, item->instance, 0, bytes);
    writer.write(spec.name, bytes);
  }
  writer.finish();
}

// What the first rank tells the others: as whom they save, and where.
std::string order_text(const SavePlace& place, const fs::path& staging) {
  return detail::concat(place.save, "\n", place.run.id, "\n", place.run.parent, "\n", staging.string());
}

struct SaveOrder {
  SavePlace place;
  fs::path staging;
};

SaveOrder read_order(std::string_view text) {
  const auto line = [&] {
    const std::string first(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(text.size(), first.size() + 1));
    return first;
  };
  SaveOrder order;
  order.place.save = std::stoll(line());
  order.place.run.id = line();
  order.place.run.parent = line();
  order.staging = text;
  return order;
}

// The first rank's part: the folder, of which the others are told, and its end.
void save_first(const Assembly& assembly, const PlanMemory& memory, const Progress& progress,
                const SavePlace& place, const Announce& others) {
  check_place(place.run_folder, place.run, progress.step);
  clear_dead_saves(place.run_folder);
  DurableFolder folder(checkpoint_path(place.run_folder, progress.step), Existing::replace);
  if (others) others("save", order_text(place, folder.staging()));
  write_file(assembly, memory, progress, place, folder.staging());
  if (others) others("saved", "");
  folder.commit_as_latest();
  if (place.keep > 0) remove_old_checkpoints(place.run_folder, place.run, place.keep);
}

void save_part(const Assembly& assembly, const PlanMemory& memory, const Progress& progress,
               const Announce& others) {
  const SaveOrder order = read_order(others("save", "").front());
  write_file(assembly, memory, progress, order.place, order.staging);
  others("saved", "");
}

// The file is that rank's, and the recipe makes of it what the saved one did.
void check_layout(const Assembly& assembly, const SafetensorsFile& file, const CheckpointHead& head,
                  std::int64_t rank) {
  const std::string layout = layout_text(assembly.program());
  if (head.layout != layout)
    throw_error(ErrorCode::bad_input, file.path().string(), " was saved by the layout '", head.layout,
                "', the recipe makes it '", layout,
                "'; go on with the mesh and strategies it was saved with");
  if (head.rank != rank)
    throw_error(ErrorCode::bad_input, file.path().string(), " is the file of rank ", head.rank,
                ", not of rank ", rank, "; bring the files of the checkpoint back to where they were");
}

void check_items(const Assembly& assembly, const SafetensorsFile& file, const CheckpointHead& head) {
  const std::vector<Item> list = items(assembly);
  if (list.size() != file.entries().size())
    throw_error(ErrorCode::bad_input, file.path().string(), " holds ", file.entries().size(),
                " tensors, the recipe needs ", list.size(),
                "; the recipe's model, optimizer or precision differs from the saved run's");
  for (const Item& item : list) check_item(file, item);
  if (head.parts != parts_digest(assembly, list))
    throw_error(
        ErrorCode::bad_input, file.path().string(),
        " holds other parts of the tensors than the recipe's layout gives to this rank; go on with the "
        "mesh and strategies it was saved with");
}

// Whose file a rank goes on from.
std::int64_t file_of(const Assembly& assembly) { return all_alike(assembly.program()) ? 0 : assembly.rank(); }

SafetensorsFile open_file(const fs::path& where, std::int64_t rank) {
  const fs::path path = find_checkpoint(where) / rank_file_name(rank);
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw_error(ErrorCode::not_found, path.string(), " is not there: the checkpoint is not whole");
  return SafetensorsFile(path);
}

LoadedCheckpoint checked(const Assembly& assembly, const SafetensorsFile& file) {
  std::error_code ignored;
  const fs::path run_folder = fs::canonical(file.path().parent_path(), ignored).parent_path();
  LoadedCheckpoint loaded{read_head(file), file.path(), run_folder, {}};
  check_belongs(file, loaded.head);
  check_layout(assembly, file, loaded.head, file_of(assembly));
  check_items(assembly, file, loaded.head);
  if (all_alike(assembly.program())) loaded.digest = file.header_checksum();
  return loaded;
}

}  // namespace

fs::path save_checkpoint(const Assembly& assembly, const PlanMemory& memory, const Progress& progress,
                         const SavePlace& place, const Announce& announce) {
  const Announce others = all_alike(assembly.program()) ? Announce{} : announce;
  if (assembly.rank() == 0)
    save_first(assembly, memory, progress, place, others);
  else if (others)
    save_part(assembly, memory, progress, others);
  return checkpoint_path(place.run_folder, progress.step);
}

void check_checkpoint(const Assembly& assembly, const fs::path& where) {
  const std::int64_t files = all_alike(assembly.program()) ? 1 : assembly.mesh().world();
  for (std::int64_t rank = 0; rank < files; ++rank) {
    const SafetensorsFile file = open_file(where, rank);
    const CheckpointHead head = read_head(file);
    check_belongs(file, head);
    check_layout(assembly, file, head, rank);
    // What others need of theirs, their own plans tell.
    if (rank == assembly.rank() || files == 1) check_items(assembly, file, head);
  }
}

LoadedCheckpoint load_checkpoint(const Assembly& assembly, const PlanMemory& memory, const fs::path& where) {
  const SafetensorsFile file = open_file(where, file_of(assembly));
  LoadedCheckpoint loaded = checked(assembly, file);
  std::vector<Item> list = items(assembly);
  std::stable_partition(list.begin(), list.end(), [](const Item& item) { return item.rounded == none; });
  for (const Item& item : list) read_item(file, item, memory);
  return loaded;
}

}  // namespace prun
