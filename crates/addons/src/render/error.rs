//! Why a chart could not be rendered or packed, in words for a condition.

/// Longest message, in bytes.
pub(crate) const LONGEST: usize = 1024;

/// What kind of trouble it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenderFault {
    /// There is no Helm where it was looked for.
    HelmNotFound,
    /// What is there is no Helm 3.16 or later (3 and 4), or does not answer.
    HelmNotUsable,
    /// A release name, namespace or version that can't be given to Helm.
    InvalidRequest,
    /// Helm refuses the chart or its values.
    ChartRejected,
    /// The chart was published without the charts that it depends on.
    DependenciesMissing,
    /// It renders more than what is read of one.
    OutputTooLarge,
    /// Something in the render is no Kubernetes object, or none that can be placed.
    ObjectRejected,
    /// An object is too large for an envelope.
    ObjectTooLarge,
    /// Helm took longer than it may.
    TimeLimit,
    /// Helm needed more memory than it may have.
    MemoryLimit,
    /// Helm could not be started, or ended without a word about the chart.
    HelmFailed,
}

impl RenderFault {
    /// The reason in a condition.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::HelmNotFound => "HelmNotFound",
            Self::HelmNotUsable => "HelmNotUsable",
            Self::InvalidRequest => "InvalidRequest",
            Self::ChartRejected => "ChartRejected",
            Self::DependenciesMissing => "ChartDependenciesMissing",
            Self::OutputTooLarge => "RenderTooLarge",
            Self::ObjectRejected => "ObjectRejected",
            Self::ObjectTooLarge => "ObjectTooLarge",
            Self::TimeLimit => "RenderTimeLimit",
            Self::MemoryLimit => "RenderMemoryLimit",
            Self::HelmFailed => "HelmFailed",
        }
    }

    /// Whether somebody has to mend something. The others may pass by themselves: a machine that is busy
    /// reaches limits that it would not reach at another time.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::TimeLimit | Self::MemoryLimit | Self::HelmFailed)
    }
}

/// A chart that could not be rendered or packed. The message is for people, at most 1 KiB long, and cites of
/// the values only what Helm itself cites.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RenderError {
    /// What kind of trouble.
    pub fault: RenderFault,
    /// For people.
    pub message: String,
}

impl RenderError {
    /// One with a message, cut to 1 KiB.
    #[must_use]
    pub fn new(fault: RenderFault, message: impl Into<String>) -> Self {
        let mut message = message.into();
        cut(&mut message, LONGEST);
        Self { fault, message }
    }
}

/// Cuts a text to so many bytes, and shows that.
pub(crate) fn cut(text: &mut String, longest: usize) {
    if text.len() > longest {
        let mut end = longest.saturating_sub('…'.len_utf8());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
}
