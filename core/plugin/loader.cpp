// Loads plugins by Boost.DLL. Its headers stay in this file: its filesystem (Boost's) is not the rest of
// prun's.
#include "plugin/loader.hpp"

#include <dlfcn.h>

#include <boost/dll/shared_library.hpp>
#include <cstring>

#include "base/sha256.hpp"
#include "plugin/compatibility.hpp"
#include "plugin/elf_file.hpp"
#include "plugin/plugin_lines.hpp"
#include "plugin/traits.hpp"

namespace prun {
namespace {

namespace dll = boost::dll;

// Makes the executable need the SDK library, so that plugins find it loaded wherever they lie.
__attribute__((used)) const char* const sdk_anchor = prun_sdk_epoch_10_itanium_libstdcxx11;

[[noreturn]] void refuse(const MappedPlugin& plugin, std::string_view reason) {
  throw_error(ErrorCode::bad_input, "'", plugin.file.path.string(), "' cannot be used: ", reason);
}

// Unwraps dlerror()'s text, which Boost wraps into its own: "... (dlerror system message: TEXT): Bad file
// descriptor".
std::string system_text(const std::string& message) {
  constexpr std::string_view before = "dlerror system message: ";
  const std::size_t begin = message.find(before);
  const std::size_t end = message.rfind("): ");
  if (begin == std::string::npos || end == std::string::npos || end < begin + before.size()) return message;
  return message.substr(begin + before.size(), end - begin - before.size());
}

// Returns a mode in which every symbol is bound now, none is lent to other libraries, and the library is
// never unloaded: Boost knows no such mode, but passes the bit on.
dll::load_mode::type load_mode() {
  return dll::load_mode::rtld_now | dll::load_mode::rtld_local |
         static_cast<dll::load_mode::type>(RTLD_NODELETE);
}

PluginEntry find_entry(const MappedPlugin& plugin) {
  const std::string name = describe(plugin.note);
  const InPlugin here(name.c_str(), "while it was loaded");
  try {
    const dll::shared_library library(plugin.file.path.c_str(), load_mode());
    return &library.get<std::remove_pointer_t<PluginEntry>>(entry_symbol);
  } catch (const std::exception& error) {
    refuse(plugin, system_text(error.what()));
  }
}

// Checks that the entry is the plugin's own: the search for a symbol goes on in the libraries that it depends
// on.
void check_origin(const MappedPlugin& plugin) {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(plugin.entry), &info) == 0 || info.dli_fname == nullptr)
    refuse(plugin, "the system cannot tell where its entry comes from");
  struct stat owner {};
  const bool same = ::stat(info.dli_fname, &owner) == 0 && owner.st_dev == plugin.file.device &&
                    owner.st_ino == plugin.file.inode;
  if (!same)
    refuse(plugin, std::string("its entry comes from another library, '") + info.dli_fname +
                       "'; it needs a PRUN_PLUGIN line of its own");
}

bool equal(const Text& text, std::string_view expected) {
  return text.size == expected.size() && std::memcmp(text.data, expected.data(), expected.size()) == 0;
}

const PluginDescriptor* call_entry(const MappedPlugin& plugin) {
  const PluginDescriptor* descriptor = nullptr;
  const std::string name = describe(plugin.note);
  const InPlugin here(name.c_str(), "in its entry");
  const Status status = guard([&] { descriptor = plugin.entry(&host_api()); });
  if (!status.ok()) refuse(plugin, std::string("its entry threw: ") + status.message);
  const std::string problem = descriptor_problem(descriptor, plugin.note);
  if (!problem.empty()) refuse(plugin, problem);
  return descriptor;
}

}  // namespace

MappedPlugin map_plugin(const std::filesystem::path& path) {
  MappedPlugin plugin;
  plugin.file = open_trusted(path);
  plugin.note = read_note(plugin.file.descriptor.get(), plugin.file.path.string());
  if (const std::string reason = incompatibility(plugin.note); !reason.empty()) refuse(plugin, reason);
  const std::string name = plugin.file.path.string();
  ElfFile(source_of_file(plugin.file.descriptor.get(), name), name).check_loadable();
  plugin.entry = find_entry(plugin);
  check_same_file(plugin.file, plugin.file.path);
  check_origin(plugin);
  return plugin;
}

// Fields are read in the order that makes reading the next one safe.
std::string descriptor_problem(const PluginDescriptor* descriptor, const PluginNote& note) {
  if (descriptor == nullptr) return "its entry returned no descriptor";
  if (descriptor->magic != descriptor_magic) return "its descriptor does not begin with prun's magic number";
  if (descriptor->struct_size < sizeof(PluginDescriptor))
    return detail::concat("its descriptor has ", descriptor->struct_size, " bytes, this prun needs at least ",
                          sizeof(PluginDescriptor));
  if (descriptor->epoch != plugin_epoch) return "its descriptor is of another epoch than its note";
  if (descriptor->layout != layout_hash) return "its descriptor has another interface layout than its note";
  if (!equal(descriptor->abi, abi_tag)) return "its descriptor has another ABI tag than its note";
  if (!equal(descriptor->kind, note.kind)) return "its descriptor is of another kind than its note";
  if (!equal(descriptor->name, note.name)) return "its descriptor has another name than its note";
  if (!descriptor->create || !descriptor->destroy) return "its descriptor lacks create or destroy";
  if (trait_of(note, "reads").empty() != (descriptor->read_config == nullptr))
    return "its trait `reads` and a function read_config() go together, and it has one of them";
  return "";
}

PluginLibrary::PluginLibrary(MappedPlugin mapped, const PluginDescriptor* descriptor)
    : note_(std::move(mapped.note)),
      path_(std::move(mapped.file.path)),
      file_(std::move(mapped.file.descriptor)),
      warnings_(std::move(mapped.file.warnings)),
      descriptor_(descriptor) {}

std::shared_ptr<const PluginLibrary> PluginLibrary::load(MappedPlugin mapped) {
  const PluginDescriptor* descriptor = call_entry(mapped);
  struct Record : PluginLibrary {  // make_shared needs a constructor it may call
    Record(MappedPlugin m, const PluginDescriptor* d) : PluginLibrary(std::move(m), d) {}
  };
  return std::make_shared<const Record>(std::move(mapped), descriptor);
}

std::shared_ptr<const PluginLibrary> PluginLibrary::load(const std::filesystem::path& path) {
  return load(map_plugin(path));
}

const std::string& PluginLibrary::sha256() const {
  std::call_once(digested_, [this] { sha256_ = sha256_of_file(file_.get(), path_.string()); });
  return sha256_;
}

void PluginLibrary::read_config(const OptionsApi& config, const ConfigWriterApi& options) const {
  const std::string name = describe(note_);
  PRUN_CHECK(descriptor_->read_config, name, " reads no config.json");
  const InPlugin here(name.c_str(), "in read_config()");
  raise(under_name(name, descriptor_->read_config(&config, &options)));
}

void* PluginLibrary::create_raw(const OptionsApi& options) const {
  Status status;
  const std::string name = describe(note_);
  const InPlugin here(name.c_str(), "while its object was created");
  void* object = descriptor_->create(&options, &status);
  if (object == nullptr && status.ok())
    status = Status::failure(ErrorCode::internal, "create() gave neither an object nor a reason");
  if (object != nullptr && !status.ok()) descriptor_->destroy(object);
  if (!status.ok()) raise(under_name(name, status));
  return object;
}

}  // namespace prun
