// Finds the library of a transport, in the user's directories or beside libhookline, and checks its version.
#include "backend/p2p/load_transport.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "core/plugin.hpp"

namespace hookline::p2p {
namespace {

namespace fs = std::filesystem;

// RTLD_DEEPBIND, because PyTorch's libraries export the symbols of their own version of Gloo. The sanitizers do not
// support it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOpenFlags = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int kOpenFlags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

// The application and the transport must share one MPI, so the mpi transport is not deep-bound.
int open_flags(const std::string& name) { return name == "mpi" ? RTLD_NOW | RTLD_LOCAL : kOpenFlags; }

// Returns the directory of libhookline.so, or of the program it is linked into.
fs::path own_directory() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&own_directory), &info) == 0 || !info.dli_fname) return {};
  std::error_code ignored;
  const fs::path file = fs::canonical(info.dli_fname, ignored);
  return file.parent_path();
}

core::Plugin open_library(const std::string& name, const fs::path& path, const std::string& package) {
  try {
    return {path, "a transport", open_flags(name)};
  } catch (const Unsupported& e) {
    throw Unsupported(fmt::format("the transport '{}': {}. Install {}.", name, e.what(), package));
  }
}

}  // namespace

std::vector<fs::path> library_paths(const std::string& name) {
  const std::string file = fmt::format("libhookline_{}.so", name);
  std::vector<fs::path> paths;
  for (const fs::path& folder : core::plugin_search_path("HOOKLINE_TRANSPORT_PATH")) paths.push_back(folder / file);
  paths.push_back(own_directory() / file);
  return paths;
}

MakeTransport* load_transport(const std::string& name, const std::string& package) {
  std::string searched;
  for (const fs::path& path : library_paths(name)) {
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
      searched += fmt::format("{}{}", searched.empty() ? "" : ", ", path.string());
      continue;
    }
    const core::Plugin library = open_library(name, path, package);
    library.check_version("hookline_transport_abi_version", kTransportAbiVersion);
    return library.function<MakeTransport>("hookline_make_transport");
  }
  throw Unsupported(fmt::format(
      "the transport '{}' is not installed: no library found at {}. Install {}, and build Hookline with it.", name,
      searched, package));
}

}  // namespace hookline::p2p
