// What is loaded, what is refused and with which words, and how a plugin's errors reach the caller.
#include "plugin/loader.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <random>
#include <span>

#include "base/sha256.hpp"
#include "plugin_fixtures.hpp"

namespace prun {
namespace {

using test::error_of;
using test::holds;
using test::Section;

class Loader : public testing::Test {
 protected:
  std::filesystem::path fixture(const std::string& file) { return test::copy_fixture(file, folder_.path()); }
  std::string load_error(const std::string& file) {
    const std::filesystem::path path = fixture(file);
    return error_of([&] { PluginLibrary::load(path); });
  }

  test::TempFolder folder_;
  Section section_{{{"layers", 3}}, {}};
};

TEST_F(Loader, LoadsAndRecordsAPlugin) {
  const std::filesystem::path path = fixture("libprun_model_good.so");
  const auto library = PluginLibrary::load(path);
  EXPECT_EQ(library->note().name, "good");
  EXPECT_EQ(library->path(), path);
  EXPECT_EQ(library->sha256(), sha256_hex(test::contents(path)));
  EXPECT_TRUE(library->warnings().empty());
}

// The digest may be asked for late: it is that of the file that was loaded, whatever became of its name.
TEST_F(Loader, DigestsTheFileThatItLoaded) {
  const std::filesystem::path path = fixture("libprun_model_good.so");
  const std::string digest = sha256_hex(test::contents(path));
  const auto library = PluginLibrary::load(path);
  std::filesystem::remove(path);
  EXPECT_EQ(library->sha256(), digest);
  EXPECT_EQ(library->sha256(), digest);
}

TEST_F(Loader, MakesObjectsThatWork) {
  const auto library = PluginLibrary::load(fixture("libprun_model_good.so"));
  const std::shared_ptr<ModelInterface> model = library->create<ModelInterface>(section_.api());
  const Status status = model->build({}, nullptr, nullptr);
  EXPECT_EQ(status.code, ErrorCode::unsupported);
  EXPECT_STREQ(status.message, "model plugin 'good': this model has 3 layers and cannot be built");
}

TEST_F(Loader, KeepsTheCodeWhenTheRecordIsGone) {
  auto library = PluginLibrary::load(fixture("libprun_model_good.so"));
  const std::weak_ptr<const PluginLibrary> record = library;
  std::shared_ptr<ModelInterface> model = library->create<ModelInterface>(section_.api());
  const std::filesystem::path path = library->path();
  library.reset();
  EXPECT_FALSE(record.expired());  // the object holds it
  EXPECT_EQ(model->build({}, nullptr, nullptr).code, ErrorCode::unsupported);
  model.reset();
  EXPECT_TRUE(record.expired());
  EXPECT_NE(::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
}

TEST_F(Loader, RaisesThePluginsErrorsUnderItsName) {
  const auto library = PluginLibrary::load(fixture("libprun_model_good.so"));
  section_.integers["layers"] = 13;
  const auto create = [&] { library->create<ModelInterface>(section_.api()); };
  EXPECT_EQ(error_of(create), "model plugin 'good': 13 layers bring bad luck; take 12");
  section_.integers.clear();
  EXPECT_EQ(error_of(create), "model plugin 'good': option 'layers' has no value");
}

TEST_F(Loader, TurnsWhateverIsThrownIntoAnError) {
  const auto library = PluginLibrary::load(fixture("libprun_observer_throws.so"));
  EXPECT_EQ(error_of([&] { library->create<ObserverInterface>(section_.api()); }),
            "observer plugin 'throws': an exception that is not a std::exception");
}

TEST_F(Loader, ChecksTheKindOfTheInterface) {
  const auto library = PluginLibrary::load(fixture("libprun_model_good.so"));
  EXPECT_TRUE(
      holds(error_of([&] { library->create<DataInterface>(section_.api()); }), "is not of kind data"));
}

TEST_F(Loader, RefusesByTheNoteBeforeAnyCodeRuns) {
  const std::string epoch = load_error("libprun_model_wrong_epoch.so");
  EXPECT_TRUE(holds(epoch, folder_.path().string() + "/libprun_model_wrong_epoch.so' cannot be used: "));
  EXPECT_TRUE(holds(epoch, "built for epoch 1 (SDK 0.9.9), this prun has 10 (SDK 0.3.0); rebuild it"));
  EXPECT_TRUE(holds(load_error("libprun_model_wrong_layout.so"), "interface layout 0123456789abcdef"));
  EXPECT_TRUE(holds(load_error("libprun_model_wrong_abi.so"), "ABI linux-x86_64-other"));
  EXPECT_TRUE(holds(load_error("libprun_model_no_note.so"), "has no PRUN note"));
}

TEST_F(Loader, RefusesAnUntrustedFileBeforeAnyCodeRuns) {
  const std::filesystem::path path = fixture("libprun_model_crashes_on_load.so");
  ::chmod(path.c_str(), 0777);
  EXPECT_TRUE(holds(error_of([&] { PluginLibrary::load(path); }), "can be written by anybody"));
}

TEST_F(Loader, NamesAMissingSymbol) {
  const std::string error = load_error("libprun_model_missing_symbol.so");
  EXPECT_TRUE(holds(error, "undefined symbol: "));
  EXPECT_EQ(error.find("dlerror"), std::string::npos) << error;
}

TEST_F(Loader, RefusesAnEntryFromAnotherLibrary) {
  fixture("libborrowed_base.so");
  EXPECT_TRUE(holds(load_error("libprun_model_borrowed.so"), "its entry comes from another library, "));
}

// The places of a library that the system's loader reads before any code.
struct LoaderTables {
  explicit LoaderTables(const std::string& bytes) {
    const auto* const header = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
    const auto* const segments = reinterpret_cast<const Elf64_Phdr*>(bytes.data() + header->e_phoff);
    for (const Elf64_Phdr& one : std::span(segments, header->e_phnum)) {
      if (one.p_type == PT_LOAD && (one.p_flags & PF_X) && code == 0) code = one.p_offset;
      if (one.p_type != PT_DYNAMIC) continue;
      dynamic = one.p_offset;
      dynamic_size = one.p_filesz;
    }
    const auto* const entries = reinterpret_cast<const Elf64_Dyn*>(bytes.data() + dynamic);
    for (const Elf64_Dyn& one : std::span(entries, dynamic_size / sizeof(Elf64_Dyn)))
      if (one.d_tag == DT_RELA) relocations = one.d_un.d_ptr;  // in the first segment: an offset as well
  }
  std::size_t code = 0, dynamic = 0, dynamic_size = 0, relocations = 0;
};

TEST_F(Loader, NamesAFileWhoseRelocationsAreDamaged) {
  const std::filesystem::path path = fixture("libprun_model_good.so");
  std::string bytes = test::contents(path);
  bytes.at(LoaderTables(bytes).relocations + offsetof(Elf64_Rela, r_info)) ^= 1;
  test::write_file(path, bytes);
  const std::string error = error_of([&] { PluginLibrary::load(path); });
  EXPECT_TRUE(holds(error, path.string() + "' is a damaged ELF file: a relocation is of another type"))
      << error;
}

// What the loader asserts it says in its own words and ends with 127: the checks before it leave it nothing.
TEST_F(Loader, DamageDoesNotEndInAWordOfTheSystemsLoader) {
  const std::filesystem::path path = fixture("libprun_model_good.so");
  const std::string good = test::contents(path);
  const LoaderTables tables(good);
  std::mt19937 random(7);
  for (int trial = 0; trial < (std::getenv("PRUN_LONG") ? 10000 : 600); ++trial) {
    const std::size_t at =
        trial % 2 == 0 ? tables.dynamic + random() % tables.dynamic_size : random() % tables.code;
    const int bit = static_cast<int>(random() % 8);
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
    test::write_file(path, bytes);
    const pid_t child = ::fork();
    if (child == 0) {
      for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, SIG_DFL);
      error_of([&] { PluginLibrary::load(path); });
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 127) << "byte " << at << " bit " << bit;
  }
}

TEST_F(Loader, RefusesADescriptorThatContradictsTheNote) {
  EXPECT_TRUE(holds(load_error("libprun_model_liar.so"), "another name than its note"));
}

TEST(Descriptor, IsCheckedFieldByField) {
  PluginNote note;
  note.kind = "model";
  note.name = "x";
  const PluginDescriptor good{descriptor_magic,
                              sizeof(PluginDescriptor),
                              plugin_epoch,
                              0,
                              layout_hash,
                              abi_tag,
                              "model",
                              "x",
                              [](const OptionsApi*, Status*) noexcept -> void* { return nullptr; },
                              [](void*) noexcept {},
                              nullptr};
  const auto problem = [&](auto change) {
    PluginDescriptor changed = good;
    change(changed);
    return descriptor_problem(&changed, note);
  };
  using D = PluginDescriptor;
  EXPECT_EQ(problem([](D& d) { d.struct_size += 64; }), "");  // at least, never equal
  EXPECT_TRUE(holds(problem([](D& d) { d.magic = 1; }), "magic"));
  EXPECT_TRUE(holds(problem([](D& d) { d.struct_size = 16; }), "has 16 bytes"));
  EXPECT_TRUE(holds(problem([](D& d) { d.epoch = 1; }), "epoch"));
  EXPECT_TRUE(holds(problem([](D& d) { d.layout ^= 1; }), "layout"));
  EXPECT_TRUE(holds(problem([](D& d) { d.abi = "y"; }), "ABI"));
  EXPECT_TRUE(holds(problem([](D& d) { d.kind = "data"; }), "kind"));
  EXPECT_TRUE(holds(problem([](D& d) { d.name = "y"; }), "name"));
  EXPECT_TRUE(holds(problem([](D& d) { d.create = nullptr; }), "create"));
  EXPECT_TRUE(holds(problem([](D& d) { d.destroy = nullptr; }), "destroy"));
  EXPECT_TRUE(holds(descriptor_problem(nullptr, note), "no descriptor"));
  EXPECT_TRUE(holds(problem([](D& d) {
                      d.read_config = [](const OptionsApi*, const ConfigWriterApi*) noexcept {
                        return Status{};
                      };
                    }),
                    "its trait `reads`"));
}

}  // namespace
}  // namespace prun
