// Loads plugins by Boost.DLL. Its headers stay in this file: its filesystem (Boost's) is not the rest of
// prun's.
#include "plugin/loader.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>
#include <boost/dll/shared_library.hpp>

#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>

#include "base/sha256.hpp"
#include "plugin/guarded_plugin.hpp"
#include "plugin/note.hpp"
#include "plugin/traits.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- trust
// Checks owner and permissions of a plugin file and of every folder above it.

namespace fs = std::filesystem;

[[noreturn]] void cannot(std::string_view action, const fs::path& path, int error) {
  const bool missing = error == ENOENT || error == ENOTDIR;
  throw_error(missing ? ErrorCode::not_found : ErrorCode::storage, "cannot ", action, " '", path.string(),
              "': ", std::strerror(error));
}

fs::path real_path(const fs::path& path) {
  std::error_code error;
  fs::path result = fs::canonical(path, error);
  if (error) cannot("open", path, error.value());
  return result;
}

void judge(const struct stat& info, const fs::path& path, const fs::path& plugin,
           std::vector<std::string>& warnings) {
  const std::string reason = distrust(info, ::geteuid(), ::getegid());
  if (!reason.empty()) {
    const std::string what = path == plugin ? "" : "its folder '" + path.string() + "' ";
    throw_error(ErrorCode::bad_input, "'", plugin.string(), "' cannot be trusted: ", what,
                what.empty() ? "it " : "", reason);
  }
  const bool sticky_folder = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX);
  if ((info.st_mode & S_IWGRP) && !sticky_folder)
    warnings.push_back("'" + path.string() + "' can be written by its group; chmod g-w it");
}

void add_folders_above(fs::path path, std::set<fs::path>& folders) {
  while (path != path.root_path()) {
    path = path.parent_path();
    folders.insert(path);
  }
}

// Returns the folders above the file itself, and above the place of a symbolic link to it.
std::set<fs::path> folders_above(const fs::path& given, const fs::path& file) {
  std::set<fs::path> folders;
  add_folders_above(file, folders);
  const fs::path holder = real_path(fs::absolute(given).parent_path());
  folders.insert(holder);
  add_folders_above(holder, folders);
  return folders;
}

}  // namespace

std::string distrust(const struct stat& info, uid_t user, gid_t group) {
  const bool sticky_folder = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX);
  if ((info.st_mode & S_IWOTH) && !sticky_folder) return "can be written by anybody; chmod o-w it";
  if (info.st_uid != 0 && info.st_uid != user)
    return detail::concat("belongs to user ", info.st_uid, ", neither to root nor to you (", user, ")");
  if ((info.st_mode & S_IWGRP) && !sticky_folder && info.st_gid != 0 && info.st_gid != group)
    return detail::concat("can be written by group ", info.st_gid, ", neither root's nor yours (", group,
                          "); chmod g-w it");
  return "";
}

TrustedFile open_trusted(const fs::path& path) {
  TrustedFile file;
  file.path = real_path(path);
  // Without O_NONBLOCK, opening a pipe of that name would wait for a writer.
  file.descriptor =
      FileDescriptor(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!file.descriptor.is_open()) cannot("open", path, errno);
  struct stat info {};
  if (::fstat(file.descriptor.get(), &info) != 0) cannot("examine", path, errno);
  if (!S_ISREG(info.st_mode))
    throw_error(ErrorCode::bad_input, "'", path.string(), "' is not a regular file");
  judge(info, file.path, file.path, file.warnings);
  file.device = info.st_dev;
  file.inode = info.st_ino;
  for (const fs::path& folder : folders_above(path, file.path)) {
    if (::lstat(folder.c_str(), &info) != 0) cannot("examine", folder, errno);
    judge(info, folder, file.path, file.warnings);
  }
  return file;
}

void check_same_file(const TrustedFile& file, const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) cannot("examine", path, errno);
  if (info.st_dev != file.device || info.st_ino != file.inode)
    throw_error(ErrorCode::bad_input, "'", path.string(), "' is not the file '", file.path.string(),
                "' that was checked: it was replaced while being loaded");
}

namespace {

// ------------------------------------------------------------------- loader

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
