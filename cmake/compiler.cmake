# Compiler settings of all targets.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(ccache ccache)
if(ccache AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache requires this sloppiness for precompiled headers. Relative paths without the working directory let several
  # build directories share cache entries.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${ccache})
endif()

# All ranks must compute the same bits, so the compiler must not contract a multiply and an add.
add_compile_options(-ffp-contract=off)
# The presets enable warnings. gcc 12 reports false overlaps and overflows in "text" + std::string at -O3 (bug 105651).
add_compile_options("$<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-restrict;-Wno-stringop-overflow>")
if(HOOKLINE_SANITIZE)
  add_compile_options(-fsanitize=${HOOKLINE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HOOKLINE_SANITIZE})
  # Thread sanitizer does not support fences. The only fence orders atomic words for a wake-up, and publishes no data.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
endif()
