//! Shapes: what each layer makes of its input, and why it cannot.
//!
//! The engine compiles from the same functions, so the plan that is printed is the plan that runs.

use crate::model::{Concat, Conv2D, Layer, Padding, Pooling2D, Residual, Size2};
use serde::{Deserialize, Serialize};

/// Shape of one example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Shape {
    /// Height, width, channels.
    Image { height: usize, width: usize, channels: usize },
    /// A plain vector.
    Vector(usize),
}

/// What the data turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataFacts {
    /// Shape of one example.
    pub input: Shape,
    /// One more than the largest label; `None` when the targets are numbers.
    pub classes: Option<usize>,
    /// Training examples, after held-out parts were set aside.
    pub examples: usize,
}

impl Shape {
    /// Number of values in one example.
    pub fn len(self) -> usize {
        self.pixels().saturating_mul(self.channels())
    }
    /// Whether an example holds nothing.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
    /// Pixels (one for a vector).
    pub fn pixels(self) -> usize {
        match self {
            Self::Image { height, width, .. } => height.saturating_mul(width),
            Self::Vector(_) => 1,
        }
    }
    /// Channels (the length of a vector).
    pub fn channels(self) -> usize {
        match self {
            Self::Image { channels, .. } => channels,
            Self::Vector(n) => n,
        }
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Image { height, width, channels } => write!(f, "{height}×{width}×{channels}"),
            Self::Vector(n) => write!(f, "{n}"),
        }
    }
}

/// How a window slides over one image: sizes, strides and the padding on each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub kernel_h: usize,
    pub kernel_w: usize,
    pub stride_h: usize,
    pub stride_w: usize,
    /// Rows of padding above.
    pub pad_top: usize,
    /// Columns of padding at the left.
    pub pad_left: usize,
    /// Rows of padding below.
    pub pad_bottom: usize,
    /// Columns of padding at the right.
    pub pad_right: usize,
    pub out_h: usize,
    pub out_w: usize,
}

impl Window {
    /// Places the window on an image as Keras does (`same` puts the odd pixel below and right).
    pub fn place(
        (height, width): (usize, usize),
        kernel: Size2,
        strides: Size2,
        padding: Padding,
    ) -> Result<Self, String> {
        let (kh, kw) = (kernel.height(), kernel.width());
        let (sh, sw) = (strides.height(), strides.width());
        if kh == 0 || kw == 0 || sh == 0 || sw == 0 {
            return Err("kernel and strides must be at least 1".into());
        }
        let axis = |size: usize, k: usize, s: usize| match padding {
            Padding::Valid => (size >= k).then(|| ((size - k) / s + 1, 0, 0)),
            Padding::Same => {
                let out = size.div_ceil(s);
                let last = out.checked_sub(1)?.saturating_mul(s);
                let pad = last.saturating_add(k).saturating_sub(size);
                Some((out, pad / 2, pad - pad / 2))
            }
        };
        let text = if kh == kw { format!("{kh}") } else { format!("{kh}×{kw}") };
        let misfit = || format!("kernel {text} does not fit a {height}×{width} input");
        let (out_h, pad_top, pad_bottom) = axis(height, kh, sh).ok_or_else(misfit)?;
        let (out_w, pad_left, pad_right) = axis(width, kw, sw).ok_or_else(misfit)?;
        Ok(Self {
            kernel_h: kh,
            kernel_w: kw,
            stride_h: sh,
            stride_w: sw,
            pad_top,
            pad_left,
            pad_bottom,
            pad_right,
            out_h,
            out_w,
        })
    }
}

/// A shape that cannot be, and the layer that wanted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Where: indices into nested layer lists (`layers`, `shortcut` or a branch number between them).
    pub path: Vec<Step>,
    /// What does not fit.
    pub message: String,
}

/// One step from the outer layer list towards an inner layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The n-th layer of a list, from 0.
    Layer(usize),
    /// Into a residual block's main branch.
    Main,
    /// Into a residual block's shortcut.
    Shortcut,
    /// Into the n-th branch of a concat block, from 0.
    Branch(usize),
}

/// Shape after a list of layers.
pub fn after_all(layers: &[Layer], input: Shape) -> Result<Shape, Misfit> {
    let mut shape = input;
    for (i, layer) in layers.iter().enumerate() {
        shape = after(layer, shape).map_err(|mut m| {
            m.path.insert(0, Step::Layer(i));
            m
        })?;
    }
    Ok(shape)
}

/// Shape after one layer.
pub fn after(layer: &Layer, input: Shape) -> Result<Shape, Misfit> {
    let here = |message: String| Misfit { path: vec![], message };
    match layer {
        Layer::Dense(d) => match input {
            Shape::Vector(_) => Ok(Shape::Vector(d.units)),
            Shape::Image { .. } => Err(here(format!(
                "needs a vector but its input is {input}; put `Flatten` before it"
            ))),
        },
        Layer::Conv2D(c) => conv_window(c, input)
            .map(|w| Shape::Image { height: w.out_h, width: w.out_w, channels: c.filters })
            .map_err(here),
        Layer::MaxPooling2D(p) | Layer::AveragePooling2D(p) => pool_window(p, input)
            .map(|w| Shape::Image { height: w.out_h, width: w.out_w, channels: input.channels() })
            .map_err(here),
        Layer::GlobalAveragePooling2D(_) => {
            image(input).map(|(_, _, c)| Shape::Vector(c)).map_err(here)
        }
        Layer::Flatten(_) => Ok(Shape::Vector(input.len())),
        Layer::BatchNormalization(_)
        | Layer::LayerNormalization(_)
        | Layer::Dropout(_)
        | Layer::Activation(_) => Ok(input),
        Layer::Residual(r) => after_residual(r, input),
        Layer::Concat(c) => after_concat(c, input),
    }
}

/// Window of a convolution over `input`.
pub fn conv_window(conv: &Conv2D, input: Shape) -> Result<Window, String> {
    let (h, w, channels) = image(input)?;
    if !channels.is_multiple_of(conv.groups) || !conv.filters.is_multiple_of(conv.groups) {
        return Err(format!(
            "groups {} must divide both its {channels} input channels and its {} filters",
            conv.groups, conv.filters
        ));
    }
    Window::place((h, w), conv.kernel_size, conv.strides, conv.padding)
}

/// Window of a pool over `input`.
pub fn pool_window(pool: &Pooling2D, input: Shape) -> Result<Window, String> {
    let (h, w, _) = image(input)?;
    let window =
        Window::place((h, w), pool.pool_size, pool.strides.unwrap_or(pool.pool_size), pool.padding)
            .map_err(|m| m.replacen("kernel", "pool_size", 1))?;
    if window.kernel_h.saturating_mul(window.kernel_w) > 256
        && (window.kernel_h > h || window.kernel_w > w)
    {
        return Err("pool_size is larger than its input".into());
    }
    Ok(window)
}

fn image(input: Shape) -> Result<(usize, usize, usize), String> {
    match input {
        Shape::Image { height, width, channels } => Ok((height, width, channels)),
        Shape::Vector(n) => Err(format!("needs an image but its input is a vector of {n}")),
    }
}

fn after_residual(residual: &Residual, input: Shape) -> Result<Shape, Misfit> {
    let branch = |layers: &[Layer], step: Step| {
        after_all(layers, input).map_err(|mut m| {
            m.path.insert(0, step);
            m
        })
    };
    let main = branch(&residual.layers, Step::Main)?;
    let shortcut = branch(&residual.shortcut, Step::Shortcut)?;
    if main == shortcut {
        return Ok(main);
    }
    Err(Misfit {
        path: vec![],
        message: format!(
            "main branch gives {main} but its shortcut gives {shortcut}; they are added"
        ),
    })
}

fn after_concat(concat: &Concat, input: Shape) -> Result<Shape, Misfit> {
    let here = |message: String| Misfit { path: vec![], message };
    let mut total: Option<Shape> = None;
    for (i, layers) in concat.branches.iter().enumerate() {
        let shape = after_all(layers, input).map_err(|mut m| {
            m.path.insert(0, Step::Branch(i));
            m
        })?;
        total = Some(match (total, shape) {
            (None, s) => s,
            (
                Some(Shape::Image { height, width, channels }),
                Shape::Image { height: h, width: w, channels: c },
            ) if h == height && w == width => {
                Shape::Image { height, width, channels: channels.saturating_add(c) }
            }
            (Some(Shape::Vector(n)), Shape::Vector(m)) => Shape::Vector(n.saturating_add(m)),
            (Some(first), s) => {
                return Err(here(format!(
                    "branch {} gives {s}, which does not fit beside {first}",
                    i + 1
                )));
            }
        });
    }
    total.ok_or_else(|| here("needs at least one branch".into()))
}
